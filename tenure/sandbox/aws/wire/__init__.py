"""Wire formats of AWS: the EC2 query protocol, XML responses, and error bodies by protocol."""
