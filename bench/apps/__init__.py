"""The measured applications: in each module the bare one beside the guarded one."""
