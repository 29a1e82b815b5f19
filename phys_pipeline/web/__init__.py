"""The web app: one file per tab and the player; ``engine`` holds everything that needs no Gradio."""
