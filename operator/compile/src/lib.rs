//! Pure: objects in, per-agent manifests and diagnostics out; pod injection.
