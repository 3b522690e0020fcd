"""Replicas of a proxy over one database, behind a balancer, under calls while parts of it are killed."""
