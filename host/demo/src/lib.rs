//! the small fictional world that is the default of every command.
