//! Files that git LFS keeps apart: what git itself holds of them is a pointer.
//!
//! A file is the one that its pointer names if its size and SHA-256 are those of the
//! pointer, and if the repository's own store of large files has it. Both are looked at
//! here; nothing of LFS is run, and nothing is changed.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use lariat_sys::beneath::{self, Top};
use lariat_sys::file::{self, Key};
use sha2::Digest as _;

use crate::git::{Git, GitError};

/// No pointer is longer.
const LONGEST: usize = 1024;

/// A file whose content is not the object that git holds in its place.
#[derive(Debug)]
pub struct Differs {
    /// Where.
    pub path: PathBuf,
    /// The version that was read.
    pub key: Key,
    /// The object.
    pub oid: String,
}

/// What a pointer names.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pointer {
    sha256: String,
    size: u64,
}

/// Of these files, those in whose place there is a pointer, each with whether it is what that points to.
pub fn held<'a>(
    git: &Git,
    top: &Top,
    files: impl Iterator<Item = &'a Differs>,
) -> Result<HashMap<PathBuf, bool>, GitError> {
    let files: Vec<&Differs> = files.collect();
    if files.is_empty() {
        return Ok(HashMap::new());
    }
    let pointers = pointers(git, &files)?;
    if pointers.is_empty() {
        return Ok(HashMap::new());
    }
    let store = git.path(&["rev-parse", "--path-format=absolute", "--git-common-dir"])?.join("lfs/objects");
    let told = files.into_iter().filter_map(|file| {
        let pointer = pointers.get(&file.oid)?;
        Some((file.path.clone(), is_stored(&store, pointer) && is_named(top, file, pointer)))
    });
    Ok(told.collect())
}

/// The pointers among these objects.
fn pointers(git: &Git, files: &[&Differs]) -> Result<HashMap<String, Pointer>, GitError> {
    let told = asked(git, "--batch-check=%(objectname) %(objectsize)", files.iter().map(|file| file.oid.as_str()))?;
    let told = String::from_utf8_lossy(&told);
    let short = told.lines().filter_map(|line| {
        let (oid, size) = line.split_once(' ')?;
        size.parse::<usize>().ok().filter(|size| *size <= LONGEST).map(|size| (oid, size))
    });
    let short: Vec<(&str, usize)> = short.collect();
    let contents = asked(git, "--batch=%(objectname)", short.iter().map(|(oid, _)| *oid))?;
    let mut rest = contents.as_slice();
    let mut found = HashMap::new();
    for (oid, size) in short {
        // A line with its name, its content, and a line end.
        let Some(after) = rest.strip_prefix(format!("{oid}\n").as_bytes()).filter(|r| r.len() > size) else { break };
        if let Some(pointer) = std::str::from_utf8(&after[..size]).ok().and_then(pointer) {
            found.insert(oid.to_owned(), pointer);
        }
        rest = &after[size + 1..];
    }
    Ok(found)
}

fn asked<'a>(git: &Git, how: &str, oids: impl Iterator<Item = &'a str>) -> Result<Vec<u8>, GitError> {
    let lines: String = oids.flat_map(|oid| [oid, "\n"]).collect();
    git.feed(&["cat-file", how], &mut |to: &mut dyn Write| to.write_all(lines.as_bytes()))
}

fn pointer(text: &str) -> Option<Pointer> {
    let mut lines = text.lines();
    lines.next().filter(|first| *first == "version https://git-lfs.github.com/spec/v1")?;
    let value = |name: &str| lines.clone().find_map(|line| line.strip_prefix(name));
    let sha256 = value("oid sha256:").filter(|o| o.len() == 64 && o.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some(Pointer { sha256: sha256.to_ascii_lowercase(), size: value("size ")?.parse().ok()? })
}

/// Its copy in the store is read too: it is the one that stays.
fn is_stored(store: &Path, pointer: &Pointer) -> bool {
    let (hash, first) = (&pointer.sha256, &pointer.sha256[..2]);
    let opened = file::open(&store.join(first).join(&hash[2..4]).join(hash));
    opened.is_ok_and(|(mut file, key)| key.size == pointer.size && is_content(&mut file, pointer))
}

fn is_named(top: &Top, differs: &Differs, pointer: &Pointer) -> bool {
    let Ok((mut file, key)) = top.open_file(&differs.path) else { return false };
    if key != differs.key || key.size != pointer.size {
        return false;
    }
    is_content(&mut file, pointer)
}

fn is_content(file: &mut std::fs::File, pointer: &Pointer) -> bool {
    let mut hash = sha2::Sha256::new();
    let read = beneath::read_through(file, &mut |piece| {
        hash.update(piece);
        Ok(())
    });
    let hash: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    read.is_ok() && hash == pointer.sha256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pointer_is_one() {
        let hash = "a".repeat(64);
        let good = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{hash}\nsize 12\n");
        assert_eq!(pointer(&good), Some(Pointer { sha256: hash, size: 12 }));
        for bad in [good.replace("v1", "v9"), good.replace("size 12", "size x"), good.replace("aaaa", "a/./")] {
            assert_eq!(pointer(&bad), None, "{bad}");
        }
    }
}
