"""HTTP server of the reference engine, with SGLang's routes and field names."""
