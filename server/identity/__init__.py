"""Who a client's token of an authorization server stands for, and what that person may use."""
