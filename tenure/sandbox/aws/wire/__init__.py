"""How AWS requests and answers look on the wire: the EC2 query protocol, XML answers, and error bodies per protocol."""
