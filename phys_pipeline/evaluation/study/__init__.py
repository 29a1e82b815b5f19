"""Blind two-alternative studies with people: build one from folders of videos, serve it, analyse the answers."""
