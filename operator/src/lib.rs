//! controller and webhook.
