//! Names of objects in Kubernetes.

/// Converts `written` to a DNS label, which Kubernetes accepts as a name.
pub fn dns_label(written: &str) -> String {
    let mut name: String = written
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(63)
        .collect();
    name = name.trim_matches('-').to_owned();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}
