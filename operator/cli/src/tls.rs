//! The TLS provider of the process, which libraries ask for.

/// Somebody may have set one already in this process; then it is the same.
pub fn provide() -> anyhow::Result<()> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        rustls::crypto::ring::default_provider()
            .install_default()
            .map_err(|_| anyhow::anyhow!("two TLS providers at once"))?;
    }
    Ok(())
}
