"""What the app does, without a page: jobs, run folders, generation, scoring, studies and training runs. Imports no Gradio."""
