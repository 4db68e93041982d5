//! Where releases are listed.

use async_trait::async_trait;

use crate::domain::{
    catalog::{CatalogCategory, CatalogContents, SourcePage, SourcePageQuery},
    error::Error,
};

/// A catalog. An error with a code of its own (an invalid manifest, say) keeps
/// it; anything else is reported as [`crate::domain::error::ErrorCode::UpstreamUnavailable`].
#[async_trait]
pub trait CatalogSource: Send + Sync {
    /// All categories.
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error>;

    /// One page of one section.
    async fn page(&self, query: &SourcePageQuery) -> Result<SourcePage, Error>;

    /// Everything, one release a connector.
    async fn contents(&self) -> Result<CatalogContents, Error>;
}
