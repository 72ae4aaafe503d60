//! Local cluster, scripted model, demo services, end-to-end tests.
