"""How we reach upstreams; each link turns a transport into messages from one upstream."""
