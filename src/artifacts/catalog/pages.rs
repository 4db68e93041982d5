//! One edition of a document, cut into pages.

use super::document::StaticCatalogDocument;
use crate::domain::{
    catalog::{CatalogCategory, CatalogContents, SourcePage, SourcePageQuery},
    digest::Sha256Digest,
    error::Error,
};

/// A document as it was read once, checked.
#[derive(Debug)]
pub(super) struct Edition {
    document: StaticCatalogDocument,
    /// Page tokens are bound to it, so that a page never goes on in another edition.
    digest: Sha256Digest,
}

impl Edition {
    /// Reads and checks a document.
    pub(super) fn read(json: &[u8]) -> Result<Self, Error> {
        Ok(Self { document: StaticCatalogDocument::parse(json)?, digest: Sha256Digest::of(json) })
    }

    /// An edition of a document that was checked.
    pub(super) fn of(document: StaticCatalogDocument, digest: Sha256Digest) -> Self {
        Self { document, digest }
    }

    pub(super) fn document(&self) -> &StaticCatalogDocument {
        &self.document
    }

    pub(super) fn digest(&self) -> Sha256Digest {
        self.digest
    }

    pub(super) fn categories(&self) -> Vec<CatalogCategory> {
        self.document.categories.clone()
    }

    pub(super) fn contents(&self) -> CatalogContents {
        CatalogContents {
            source_revision: self.document.source_revision.clone(),
            releases: self.document.entries.iter().map(|entry| entry.release.clone()).collect(),
        }
    }

    pub(super) fn page(&self, query: &SourcePageQuery) -> Result<SourcePage, Error> {
        let Some(section) = self.document.section(&query.section_id) else {
            return Err(Error::invalid_request(format!(
                "the catalog has no section {:?}; list the categories to see which it has",
                query.section_id
            )));
        };
        let start = match query.page_token.as_str() {
            "" => 0,
            token => self.offset(token, section.len())?,
        };
        let end = section.len().min(start.saturating_add(query.page_size as usize));
        Ok(SourcePage {
            section_id: query.section_id.clone(),
            entries: section[start..end].iter().map(|&entry| entry.clone()).collect(),
            next_page_token: if end < section.len() { self.token(end) } else { String::new() },
        })
    }

    /// The offset of a token of this edition.
    fn offset(&self, token: &str, length: usize) -> Result<usize, Error> {
        let unknown = || Error::invalid_request("pageToken is none that this catalog gave");
        let (offset, edition) = token.split_once('.').ok_or_else(unknown)?;
        let offset: usize = offset.parse().map_err(|_| unknown())?;
        if self.mark() != edition {
            return Err(Error::invalid_request(
                "the catalog has changed since this pageToken was given; start again at the first page",
            ));
        }
        if self.token(offset) == token && offset < length { Ok(offset) } else { Err(unknown()) }
    }

    fn token(&self, offset: usize) -> String {
        format!("{offset}.{}", self.mark())
    }

    fn mark(&self) -> String {
        self.digest.to_string()[..16].to_owned()
    }
}
