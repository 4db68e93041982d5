//! Whether a release fits this host: which kinds it runs, and for whom it is.

use std::collections::HashSet;

use crate::domain::{
    compatibility::{Compatibility, CompatibilityState},
    error::{Error, ErrorCode},
    manifest::{ImplementationKind, Manifest},
    release::Release,
};

/// The implementation kinds that this host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImplementationRegistry {
    kinds: HashSet<ImplementationKind>,
}

impl Default for ImplementationRegistry {
    /// Components only.
    fn default() -> Self {
        Self::of([ImplementationKind::WasmComponent])
    }
}

impl ImplementationRegistry {
    /// A registry of exactly these kinds.
    #[must_use]
    pub fn of(kinds: impl IntoIterator<Item = ImplementationKind>) -> Self {
        Self { kinds: kinds.into_iter().collect() }
    }

    /// Whether this host runs `kind`.
    #[must_use]
    pub fn supports(&self, kind: ImplementationKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Checks a release before it is installed: its shape first, then its kind.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidManifest`], or [`ErrorCode::UnsupportedImplementation`]
    /// for a kind that this host does not run.
    pub fn check(&self, release: &Release) -> Result<(), Error> {
        release.validate()?;
        let kind = release.manifest.implementation.kind();
        if self.supports(kind) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::UnsupportedImplementation,
            format!(
                "release {} is of kind {}, which this host does not run",
                release.release_id,
                kind.as_str()
            ),
        ))
    }
}

/// What this host is, to the requirements of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// The product, such as `portcullis`.
    pub product: String,
    /// The platform, such as `linux-amd64`.
    pub platform: String,
    /// The host's version.
    pub version: semver::Version,
}

impl HostIdentity {
    /// How a release of `manifest` fits this host (spec A.4).
    #[must_use]
    pub fn evaluate(&self, registry: &ImplementationRegistry, manifest: &Manifest) -> Compatibility {
        use CompatibilityState::{
            UnsupportedImplementation, UnsupportedPlatform, UnsupportedProduct, UnsupportedVersion,
        };
        if !registry.supports(manifest.implementation.kind()) {
            return Compatibility::refused(UnsupportedImplementation, "unsupported_implementation");
        }
        let Some(asked) = &manifest.compatibility else { return Compatibility::supported() };
        let admits = |names: &[String], own: &str| names.is_empty() || names.iter().any(|name| name == own);
        if !admits(&asked.products, &self.product) {
            return Compatibility::refused(UnsupportedProduct, "unsupported_product");
        }
        if !admits(&asked.platforms, &self.platform) {
            return Compatibility::refused(UnsupportedPlatform, "unsupported_platform");
        }
        let too_old = asked
            .minimum_host_version
            .as_ref()
            .is_some_and(|minimum| self.version.cmp_precedence(minimum).is_lt());
        if too_old {
            return Compatibility::refused(UnsupportedVersion, "unsupported_version");
        }
        Compatibility::supported()
    }
}
