//! Releases to a static catalog: a folder that a host reads, or that any web
//! server can hold.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{files, inspect, pack::RELEASE_SUFFIX};
use crate::{
    artifacts::catalog::{CATALOG_FILE, StaticCatalogDocument},
    domain::{
        catalog::{CatalogCategory, CatalogEntry, CategoryKind},
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::{ConnectorKey, ReleaseId},
        release::{Release, ReleaseStatus},
    },
};

/// The category of a connector that was given none.
pub const DEFAULT_CATEGORY: &str = "connectors";
/// The section of what the catalog puts forward.
pub const FEATURED_CATEGORY: &str = "featured";

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct CatalogRequest {
    /// Release documents, or folders that hold some.
    pub releases: Vec<PathBuf>,
    /// The folder of the catalog.
    pub out: PathBuf,
    /// In which category a connector stands.
    pub categories: BTreeMap<ConnectorKey, String>,
    /// The English names of categories.
    pub category_names: BTreeMap<String, String>,
    /// The connectors to put forward.
    pub featured: BTreeSet<ConnectorKey>,
}

/// A catalog that was built.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogBuilt {
    /// The document.
    pub catalog: PathBuf,
    /// Equal for equal contents.
    pub source_revision: String,
    /// What is listed.
    pub listed: Vec<ReleaseId>,
    /// Older releases that a newer one took the place of.
    pub left_out: Vec<ReleaseId>,
    /// The categories with what they hold.
    pub categories: Vec<CatalogCategory>,
}

/// A release whose document and bytes were verified.
struct Verified {
    document: PathBuf,
    release: Release,
    file_name: String,
    bytes: Vec<u8>,
}

/// Builds a catalog. The document takes the old one's place in one step, after
/// all artifacts are there; artifacts of earlier catalogs stay, so that whoever
/// installs from one just now can finish.
///
/// # Errors
/// The code of whatever a release breaks. The catalog stays as it was then.
pub fn build(request: &CatalogRequest) -> Result<CatalogBuilt, Error> {
    let mut newest: BTreeMap<ConnectorKey, Verified> = BTreeMap::new();
    let mut left_out = Vec::new();
    for verified in load(&request.releases)? {
        let older = match newest.entry(verified.release.connector_key.clone()) {
            Entry::Vacant(free) => {
                free.insert(verified);
                continue;
            }
            Entry::Occupied(mut held) => {
                match held.get().release.version.cmp_precedence(&verified.release.version) {
                    Ordering::Less => held.insert(verified),
                    Ordering::Greater => verified,
                    Ordering::Equal => return Err(twice(held.get(), &verified)),
                }
            }
        };
        left_out.push(older.release.release_id);
    }
    left_out.sort();
    check_keys(request, &newest)?;

    let mut entries = Vec::new();
    let mut artifacts = Vec::new();
    for (key, verified) in newest {
        let Verified { document, mut release, file_name, bytes } = verified;
        release.artifact.key = format!("artifacts/{key}/{}/{file_name}", release.version);
        release
            .validate()
            .map_err(|error| Error { message: format!("{}: {error}", document.display()), ..error })?;
        artifacts.push((request.out.join(&release.artifact.key), release.artifact.sha256, bytes));
        entries.push(CatalogEntry {
            category_id: request.categories.get(&key).map_or(DEFAULT_CATEGORY, String::as_str).to_owned(),
            featured: request.featured.contains(&key),
            release,
        });
    }
    let categories = categories(request, &entries)?;
    let catalog = StaticCatalogDocument::assemble(categories, entries)?;
    for (path, sha256, _) in &artifacts {
        refuse_other_bytes(path, sha256)?;
    }
    for (path, _, bytes) in &artifacts {
        if !path.exists() {
            files::write_atomically(path, bytes)?;
        }
    }
    let path = request.out.join(CATALOG_FILE);
    files::write_atomically(&path, &files::pretty_json(&catalog)?)?;
    Ok(CatalogBuilt {
        catalog: path,
        source_revision: catalog.source_revision,
        listed: catalog.entries.into_iter().map(|entry| entry.release.release_id).collect(),
        left_out,
        categories: catalog.categories,
    })
}

fn twice(one: &Verified, other: &Verified) -> Error {
    Error::invalid_request(format!(
        "{} and {} are both {} in version {}; which of them is newer cannot be told, so name one",
        one.document.display(),
        other.document.display(),
        one.release.connector_key,
        one.release.version,
    ))
}

/// Reads and verifies every release, in the order of their paths.
fn load(sources: &[PathBuf]) -> Result<Vec<Verified>, Error> {
    let mut documents = BTreeSet::new();
    for source in sources {
        if !source.is_dir() {
            documents.insert(source.clone());
            continue;
        }
        let unreadable = |cause: std::io::Error| {
            Error::invalid_request(format!("cannot read the folder {}: {cause}", source.display()))
                .with_cause(cause)
        };
        let before = documents.len();
        for entry in fs::read_dir(source).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(RELEASE_SUFFIX)) {
                documents.insert(path);
            }
        }
        if documents.len() == before {
            return Err(Error::invalid_request(format!(
                "{} holds no {RELEASE_SUFFIX} file; `portcullis connector pack` writes them",
                source.display()
            )));
        }
    }
    documents.into_iter().map(load_one).collect()
}

fn load_one(document: PathBuf) -> Result<Verified, Error> {
    let named = |error: Error| Error { message: format!("{}: {error}", document.display()), ..error };
    let (release, artifact, bytes) =
        inspect::read_release(&files::read(&document)?, &document).map_err(named)?;
    if release.status != ReleaseStatus::Available {
        return Err(named(Error::invalid_manifest(
            "the release is superseded; a catalog offers available ones",
        )));
    }
    let bytes = bytes.ok_or_else(|| {
        named(Error::new(
            ErrorCode::ArtifactUnavailable,
            format!("the artifact {} is not there", artifact.display()),
        ))
    })?;
    let inspection = inspect::of_artifact(&release, &bytes).map_err(named)?;
    if let Some(problem) = inspection.problems.first() {
        return Err(named(Error::new(problem.code, problem.message.clone())));
    }
    let file_name = artifact.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Verified { document, release, file_name, bytes })
}

/// A word about a connector that is not there is a slip of the pen.
fn check_keys(request: &CatalogRequest, newest: &BTreeMap<ConnectorKey, Verified>) -> Result<(), Error> {
    let named = request.categories.keys().map(|key| ("--category", key));
    for (option, key) in named.chain(request.featured.iter().map(|key| ("--featured", key))) {
        if !newest.contains_key(key) {
            return Err(Error::invalid_request(format!("{option} names {key}, which no release is of")));
        }
    }
    Ok(())
}

fn categories(request: &CatalogRequest, entries: &[CatalogEntry]) -> Result<Vec<CatalogCategory>, Error> {
    let used: BTreeSet<&str> = entries.iter().map(|entry| entry.category_id.as_str()).collect();
    if used.contains(FEATURED_CATEGORY) {
        return Err(Error::invalid_request(format!(
            "category {FEATURED_CATEGORY:?} is kept for --featured; name another one"
        )));
    }
    let mut ids: Vec<(&str, CategoryKind)> = Vec::new();
    if entries.iter().any(|entry| entry.featured) {
        ids.push((FEATURED_CATEGORY, CategoryKind::Featured));
    }
    ids.extend(used.into_iter().map(|id| (id, CategoryKind::Category)));
    if let Some(id) = request.category_names.keys().find(|id| !ids.iter().any(|(used, _)| used == id)) {
        return Err(Error::invalid_request(format!(
            "--category-name names {id}, which no connector stands in"
        )));
    }
    let category = |(index, (id, kind)): (usize, (&str, CategoryKind))| CatalogCategory {
        category_id: id.to_owned(),
        kind,
        sort_order: i32::try_from(index).unwrap_or(i32::MAX),
        item_count: 0,
        display_name_zh: None,
        display_name_en: Some(request.category_names.get(id).cloned().unwrap_or_else(|| title(id))),
    };
    Ok(ids.into_iter().enumerate().map(category).collect())
}

/// `data-tools` as a person would write it: `Data tools`.
fn title(id: &str) -> String {
    let words = id.replace(['-', '_'], " ");
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// A version that a catalog once offered never changes its bytes.
fn refuse_other_bytes(path: &Path, sha256: &Sha256Digest) -> Result<(), Error> {
    if path.exists() && Sha256Digest::of(&files::read(path)?) != *sha256 {
        return Err(Error::new(
            ErrorCode::ArtifactDigestMismatch,
            format!(
                "{} is there with other bytes; a released version never changes, so pack a new version \
                 (or remove the file, where nobody can have it yet)",
                path.display()
            ),
        ));
    }
    Ok(())
}
