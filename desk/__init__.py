"""What a person looks at: the page, tasks played with other settings, and how well tools are found."""
