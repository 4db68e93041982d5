//! The skills that a bundle carries: `skills/**/SKILL.md`, each with a front matter.

use std::{fs, io::Read as _, path::Path};

use super::guest_text;
use crate::domain::runtime::SkillSummary;

const SKILLS: usize = 128;
const NAME_BYTES: usize = 128;
const TITLE_BYTES: usize = 256;
const DESCRIPTION_BYTES: usize = 4 << 10;
const ALL_BYTES: usize = 512 << 10;
const FRONT_MATTER_BYTES: u64 = 16 << 10;
const DEPTH: usize = 4;
const FOLDERS: usize = 1_024;

/// Reads the skills under `root`, by name. What is not readable or has no
/// description is left out: a skill is an extra.
pub(crate) fn read(root: &Path) -> Vec<SkillSummary> {
    let mut skills = Vec::new();
    let mut folders = vec![(root.join("skills"), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = folders.pop() {
        seen += 1;
        if seen > FOLDERS {
            break;
        }
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < DEPTH {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file() && entry.file_name() == "SKILL.md" && depth > 0 {
                skills.extend(skill(&folder, &entry.path()));
            }
        }
    }
    skills.sort_by(|a: &SkillSummary, b| a.name.cmp(&b.name));
    skills.dedup_by(|a, b| a.name == b.name);
    skills.truncate(SKILLS);
    let mut left = ALL_BYTES;
    skills.retain(|skill| {
        let size = skill.name.len() + skill.title.len() + skill.description.len();
        let fits = size <= left;
        left -= if fits { size } else { 0 };
        fits
    });
    skills
}

fn skill(folder: &Path, file: &Path) -> Option<SkillSummary> {
    let name = guest_text::plain(folder.file_name()?.to_str()?, NAME_BYTES);
    let mut text = Vec::new();
    fs::File::open(file).ok()?.take(FRONT_MATTER_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let field =
        |wanted: &str, limit: usize| front_matter(&text, wanted).map(|value| guest_text::plain(value, limit));
    let description = field("description", DESCRIPTION_BYTES)?;
    let title =
        field("title", TITLE_BYTES).or_else(|| field("name", TITLE_BYTES)).unwrap_or_else(|| name.clone());
    Some(SkillSummary { name, title, description })
}

/// The value of a one-line field between the two `---`.
fn front_matter<'a>(text: &'a str, wanted: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    if lines.next()?.trim_end() != "---" {
        return None;
    }
    lines
        .take_while(|line| line.trim_end() != "---")
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value.trim().trim_matches(['"', '\'']).trim())
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skills_are_read_from_their_front_matter() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |folder: &str, text: &str| {
            let folder = root.path().join("skills").join(folder);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("SKILL.md"), text).expect("a file");
        };
        write(
            "digest",
            "---\ntitle: \"Daily digest\"\ndescription: Sums up feeds.\n---\n# Body\ntitle: no\n",
        );
        write("deep/er", "---\nname: er\ndescription: x\n---\n");
        write("bare", "# no front matter\ndescription: x\n");
        let skills = read(root.path());
        let names: Vec<_> = skills.iter().map(|one| (one.name.as_str(), one.title.as_str())).collect();
        assert_eq!(names, [("digest", "Daily digest"), ("er", "er")]);
        assert_eq!(skills[0].description, "Sums up feeds.");
    }

    #[test]
    fn no_skills_is_ordinary() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(read(root.path()).is_empty());
    }
}
