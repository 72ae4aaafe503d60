//! The platform to choose from an image for several platforms.

use std::fmt;

/// A platform in the form of images: os, architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
}

impl Platform {
    /// Parses `OS/ARCHITECTURE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((os, architecture)) if !os.is_empty() && !architecture.is_empty() => Ok(Self {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
            }),
            _ => Err("is not of the form OS/ARCHITECTURE, as linux/arm64".to_owned()),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}
