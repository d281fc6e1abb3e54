//! The control plane of Evener: configuration, health checks, admin API, life cycle.
