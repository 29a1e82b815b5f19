"""A procedural world of captioned clips with the web's faults: what the next embedded model learns from."""
