//! The catalog: what a source offers, in categories and pages.

use serde::{Deserialize, Serialize};

use super::{connector::Connector, error::Error, release::Release, revision::Revision};

/// How far the stored catalog can be trusted (spec A.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatalogState {
    /// The last refresh was applied.
    Ready,
    /// A refresh runs.
    Refreshing,
    /// Never refreshed, or the last refresh failed; what is stored is the last known good.
    #[default]
    Stale,
    /// Part of the vocabulary; nothing sets it.
    Failed,
}

/// What a category is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CategoryKind {
    /// A plain category.
    Category,
    /// A selection put forward by the catalog.
    Featured,
}

/// A category of a catalog. Its id is the `sectionId` of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogCategory {
    /// Identifies it; not blank.
    pub category_id: String,
    /// What it is.
    pub kind: CategoryKind,
    /// Position among its siblings.
    #[serde(default)]
    pub sort_order: i32,
    /// How many connectors it holds; not negative.
    pub item_count: i64,
    /// Its name in Chinese.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name_zh: Option<String>,
    /// Its name in English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name_en: Option<String>,
}

/// One connector as a source lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogEntry {
    /// The category it stands in.
    pub category_id: String,
    /// Whether the catalog puts it forward.
    #[serde(default)]
    pub featured: bool,
    /// What it offers.
    pub release: Release,
}

/// A request for one page of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePageQuery {
    /// The section.
    pub section_id: String,
    /// At most so many entries; 1 to 100.
    pub page_size: u32,
    /// Where to go on; empty for the start.
    pub page_token: String,
}

/// One page of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePage {
    /// The section that the source answered for.
    pub section_id: String,
    /// Its entries.
    pub entries: Vec<CatalogEntry>,
    /// Where the next page starts; empty at the end.
    pub next_page_token: String,
}

/// Everything a source offers.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogContents {
    /// Equal for equal contents.
    pub source_revision: String,
    /// One release a connector.
    pub releases: Vec<Release>,
}

/// Which connectors a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstallationFilter {
    /// Only those without an installed artifact.
    NotInstalled,
}

/// A caller's request for a page, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogPageQuery {
    section_id: String,
    page_size: u32,
    page_token: String,
    filter: Option<InstallationFilter>,
}

impl CatalogPageQuery {
    /// Checks a request (spec C.3, 1).
    ///
    /// # Errors
    /// [`super::error::ErrorCode::InvalidRequest`] for a blank section, a page
    /// size outside 1 to 100, or an unknown filter.
    pub fn parse(section_id: &str, page_size: i64, page_token: &str, filter: &str) -> Result<Self, Error> {
        let section_id = section_id.trim();
        let page_size = u32::try_from(page_size).ok().filter(|size| (1..=100).contains(size));
        let (false, Some(page_size)) = (section_id.is_empty(), page_size) else {
            return Err(Error::invalid_request("sectionId and a pageSize between 1 and 100 are required"));
        };
        let filter = match filter.trim() {
            "" => None,
            "not_installed" => Some(InstallationFilter::NotInstalled),
            other => {
                return Err(Error::invalid_request(format!(
                    "installation filter {other:?} is unknown; use not_installed or leave it out"
                )));
            }
        };
        Ok(Self { section_id: section_id.into(), page_size, page_token: page_token.trim().into(), filter })
    }

    /// The section; not blank.
    #[must_use]
    pub fn section_id(&self) -> &str {
        &self.section_id
    }

    /// 1 to 100.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Where to go on; empty for the start.
    #[must_use]
    pub fn page_token(&self) -> &str {
        &self.page_token
    }

    /// Which connectors to show.
    #[must_use]
    pub fn filter(&self) -> Option<InstallationFilter> {
        self.filter
    }
}

/// One connector on a page.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogListing {
    /// The category it stands in.
    pub category_id: String,
    /// Whether the catalog puts it forward.
    pub featured: bool,
    /// The connector as stored.
    pub connector: Connector,
}

/// One page for a caller.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogPage {
    /// The section.
    pub section_id: String,
    /// Its connectors.
    pub items: Vec<CatalogListing>,
    /// Where the next page starts; empty at the end.
    pub next_page_token: String,
    /// The revision after the page was stored.
    pub revision: Revision,
}
