//! The page, as it was embedded when this program was built.
//!
//! It holds nothing of the user's, so it needs no token. Its files are sent compressed,
//! as they lie in the program.

use super::Answer;

/// A file of the page.
struct File {
    /// Where it is asked for, without the first slash.
    path: &'static str,
    /// It is compressed.
    gzip: bool,
    bytes: &'static [u8],
}

const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// What the page may do: nothing from elsewhere, and no script but its own files. The
/// terminal makes styles as it runs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A name with a hash in it always means the same bytes.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

const NOT_BUILT: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>lariat</title>\
<p>This lariat was built without its page. <code>make web</code> makes it; then build lariat again.\
<p>Everything else works: <code>lariat ls</code>, <code>GET /v1/sessions</code>.</html>\n";

/// A file of the page; `None` if there is none of that name.
pub fn answer(path: &str) -> Option<Answer> {
    let file = match FILES.iter().find(|f| f.path == path) {
        Some(file) => file,
        None if FILES.is_empty() && path == "index.html" => {
            return Some(Answer { policy: POLICY, ..Answer::new(200, kind(path)?, NOT_BUILT.as_bytes()) });
        }
        None => return None,
    };
    let mut answer = Answer { policy: POLICY, ..Answer::new(200, kind(path)?, file.bytes) };
    if path.starts_with("assets/") {
        answer.cache = FOR_EVER;
    }
    if file.gzip {
        answer.headers.push(("Content-Encoding", "gzip".into()));
    }
    Some(answer)
}

/// What a file is, by its name; `None` for what no page needs.
fn kind(path: &str) -> Option<&'static str> {
    Some(match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_and_every_file_of_it_has_a_kind() {
        assert!(answer("index.html").is_some());
        assert!(answer("assets/none.js").is_none());
        assert!(answer("assets/../index.html").is_none());
        for file in FILES {
            let answer = answer(file.path).unwrap_or_else(|| panic!("{} has no kind", file.path));
            assert_eq!(answer.cache == FOR_EVER, file.path.starts_with("assets/"), "{}", file.path);
        }
    }
}
