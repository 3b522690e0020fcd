"""The wire format of both protocol eras: messages, versions, headers, and what belongs to one hop only."""
