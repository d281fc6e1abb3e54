//! Load generation and measurement for Evener.
