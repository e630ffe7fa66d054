"""BGP by BIRD 2: its configuration as text, its control socket, and its process."""
