//! The document that a static catalog is.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domain::{
    catalog::{CatalogCategory, CatalogEntry, CategoryKind},
    digest::Sha256Digest,
    error::Error,
    id::ConnectorKey,
};

/// The name of the document in its directory or under its URL.
pub const CATALOG_FILE: &str = "catalog.json";
/// The schema version that this host reads and writes.
pub const CATALOG_SCHEMA_VERSION: &str = "1";

/// A whole catalog. Fields that this host does not know are tolerated, so that a
/// newer author can serve an older host; the releases in it are checked strictly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaticCatalogDocument {
    /// Always [`CATALOG_SCHEMA_VERSION`].
    pub schema_version: String,
    /// Equal for equal contents; not blank.
    pub source_revision: String,
    /// The categories. Every entry stands in one of kind `category`; one of kind
    /// `featured` shows the entries that are put forward.
    pub categories: Vec<CatalogCategory>,
    /// One entry a connector.
    pub entries: Vec<CatalogEntry>,
}

impl StaticCatalogDocument {
    /// Puts a document together: counts the items of every category and derives
    /// the source revision from the contents.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidManifest`], as [`Self::validate`].
    pub fn assemble(categories: Vec<CatalogCategory>, entries: Vec<CatalogEntry>) -> Result<Self, Error> {
        let mut document = Self {
            schema_version: CATALOG_SCHEMA_VERSION.to_owned(),
            source_revision: String::new(),
            categories,
            entries,
        };
        document.count_items();
        document.source_revision =
            Sha256Digest::of_canonical_json(&(&document.categories, &document.entries))?.to_string();
        document.validate()?;
        Ok(document)
    }

    /// Parses a document and checks every rule. What it says of item counts is
    /// replaced by what it holds.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidManifest`], naming what does not hold.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        let mut document: Self = serde_json::from_slice(json).map_err(|cause| {
            Error::invalid_manifest(format!("{CATALOG_FILE} is not a readable catalog: {cause}"))
        })?;
        document.validate()?;
        document.count_items();
        Ok(document)
    }

    /// Checks every rule, those of the releases included.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidManifest`], naming what does not hold.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::invalid_manifest(format!("{CATALOG_FILE}: {message}")));
        if self.schema_version != CATALOG_SCHEMA_VERSION {
            return refuse(format!(
                "schemaVersion is {:?}, this host reads {CATALOG_SCHEMA_VERSION:?}",
                self.schema_version
            ));
        }
        if self.source_revision.trim().is_empty() {
            return refuse("sourceRevision must not be blank".into());
        }
        let mut kinds = BTreeMap::new();
        for category in &self.categories {
            if category.category_id.trim().is_empty() || category.category_id.trim() != category.category_id {
                return refuse(format!(
                    "categoryId {:?} must not be blank, nor padded with spaces",
                    category.category_id
                ));
            }
            if kinds.insert(category.category_id.as_str(), category.kind).is_some() {
                return refuse(format!("category {:?} is listed twice", category.category_id));
            }
        }
        let mut keys: BTreeSet<&ConnectorKey> = BTreeSet::new();
        for entry in &self.entries {
            let key = &entry.release.connector_key;
            if kinds.get(entry.category_id.as_str()) != Some(&CategoryKind::Category) {
                return refuse(format!(
                    "connector {key} stands in {:?}, which is no listed category of kind \"category\"",
                    entry.category_id
                ));
            }
            if !keys.insert(key) {
                return refuse(format!(
                    "connector {key} is listed twice; a catalog offers one release of it"
                ));
            }
            entry.release.validate()?;
        }
        Ok(())
    }

    /// The entries that the section `section_id` shows, in the order of the
    /// document; none when there is no such section.
    #[must_use]
    pub fn section(&self, section_id: &str) -> Option<Vec<&CatalogEntry>> {
        let category = self.categories.iter().find(|category| category.category_id == section_id)?;
        Some(self.entries.iter().filter(|entry| shows(category, entry)).collect())
    }

    fn count_items(&mut self) {
        for category in &mut self.categories {
            let count = self.entries.iter().filter(|entry| shows(category, entry)).count();
            category.item_count = i64::try_from(count).unwrap_or(i64::MAX);
        }
    }
}

fn shows(category: &CatalogCategory, entry: &CatalogEntry) -> bool {
    match category.kind {
        CategoryKind::Category => entry.category_id == category.category_id,
        CategoryKind::Featured => entry.featured,
    }
}
