//! `portcullis catalog`: releases to a static catalog, without a daemon.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use clap::{Args, Subcommand};

use super::report::{Report, shown};
use crate::{
    authoring::catalog::{self, CatalogBuilt, CatalogRequest},
    domain::{error::Error, id::ConnectorKey},
};

/// What a catalog's keeper does.
#[derive(Clone, Debug, Subcommand)]
pub enum CatalogCommand {
    /// List releases in a static catalog, a folder that any web server can hold.
    Build(BuildArgs),
}

/// Arguments of `catalog build`.
#[derive(Args, Clone, Debug)]
pub struct BuildArgs {
    /// Release documents, or folders that hold some. Of each connector the newest version is listed.
    #[arg(required = true)]
    pub releases: Vec<PathBuf>,
    /// The folder of the catalog.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The category that a connector stands in [default: connectors]; may be repeated.
    #[arg(long = "category", value_name = "KEY=CATEGORY", value_parser = assignment)]
    pub categories: Vec<(String, String)>,
    /// The English name of a category; may be repeated.
    #[arg(long = "category-name", value_name = "ID=NAME", value_parser = assignment)]
    pub category_names: Vec<(String, String)>,
    /// A connector to put forward; may be repeated.
    #[arg(long, value_name = "KEY")]
    pub featured: Vec<ConnectorKey>,
}

/// Runs a `catalog` command.
///
/// # Errors
/// What the verb answers.
pub fn run(command: CatalogCommand) -> Result<Report, Error> {
    let CatalogCommand::Build(args) = command;
    let mut categories = BTreeMap::new();
    for (key, category) in args.categories {
        once("--category", &mut categories, ConnectorKey::parse(key)?, category)?;
    }
    let mut category_names = BTreeMap::new();
    for (id, name) in args.category_names {
        once("--category-name", &mut category_names, id, name)?;
    }
    let built = catalog::build(&CatalogRequest {
        releases: args.releases,
        out: args.out,
        categories,
        category_names,
        featured: args.featured.into_iter().collect(),
    })?;
    Report::new(describe(&built), &built)
}

fn once<K: Ord + std::fmt::Display>(
    option: &str,
    map: &mut BTreeMap<K, String>,
    key: K,
    value: String,
) -> Result<(), Error> {
    if map.contains_key(&key) {
        return Err(Error::invalid_request(format!("{option} names {key} twice")));
    }
    map.insert(key, value);
    Ok(())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("it takes the form NAME=VALUE".to_owned()),
    }
}

fn describe(built: &CatalogBuilt) -> String {
    let mut text = format!("wrote {}\n", built.catalog.display());
    let _ = writeln!(text, "  source revision {}", built.source_revision);
    for release in &built.listed {
        let _ = writeln!(text, "  lists {release}");
    }
    for release in &built.left_out {
        let _ = writeln!(text, "  leaves out {release}: a newer version is listed");
    }
    for category in &built.categories {
        let name = category.display_name_en.as_deref().unwrap_or_default();
        let _ =
            writeln!(text, "  category {} ({}): {}", category.category_id, shown(name), category.item_count);
    }
    text.truncate(text.trim_end().len());
    text
}
