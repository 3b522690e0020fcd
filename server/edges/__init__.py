"""How clients reach us; each edge turns a transport into messages for the proxy."""
