"""The one client: sends requests to a server and says what came back and when."""
