//! The TLS provider of the process, which libraries look up.

/// Installs the provider. If the process has one already, it must be the same.
pub fn provide() -> anyhow::Result<()> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        rustls::crypto::ring::default_provider()
            .install_default()
            .map_err(|_| anyhow::anyhow!("two TLS providers at once"))?;
    }
    Ok(())
}
