use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

struct Ground(PathBuf);

impl Ground {
    fn new(name: &str) -> Ground {
        let path = std::env::temp_dir().join(format!("lariat-beneath-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Ground(path)
    }

    fn put(&self, path: &str, content: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How many swaps; a longer run sets `LARIAT_SWAPS`.
fn swaps() -> usize {
    std::env::var("LARIAT_SWAPS").ok().and_then(|n| n.parse().ok()).unwrap_or(500)
}

#[test]
fn nothing_leads_out() {
    let ground = Ground::new("out");
    ground.put("outside/secret", "outside");
    ground.put("top/in/file", "inside");
    symlink("../outside", ground.0.join("top/link")).unwrap();
    symlink("../../outside/secret", ground.0.join("top/in/away")).unwrap();
    let top = Top::open(&ground.0.join("top")).unwrap();
    for path in ["../outside/secret", "link/secret", "in/away", "/etc/passwd", "in/../../outside/secret"] {
        assert!(top.open_file(Path::new(path)).is_err(), "{path}");
        assert!(top.put(Path::new(path), &mut &b"x"[..], 0o600, true).is_err() || path == "in/away", "{path}");
    }
    assert_eq!(fs::read(ground.0.join("outside/secret")).unwrap(), b"outside");
    assert!(top.open_file(Path::new("in/file")).is_ok());
    assert!(Top::open(&ground.0.join("top/link")).is_err(), "a link is no top");
    assert_eq!(top.remove(&mut |_| true).unwrap(), Vec::<PathBuf>::new());
    assert!(!ground.0.join("top").exists() && ground.0.join("outside/secret").exists());
}

#[test]
fn what_may_not_go_stays_and_so_does_another_top() {
    let ground = Ground::new("stay");
    ground.put("top/a/keep", "1");
    ground.put("top/a/go", "1");
    ground.put("top/b/go", "1");
    let mut top = Top::open(&ground.0.join("top")).unwrap();
    let left = top.remove(&mut |seen| !seen.path.ends_with("keep")).unwrap();
    assert_eq!(left, [PathBuf::from("a/keep"), PathBuf::from("a")]);
    top.rename(OsStr::new("going")).unwrap();
    assert!(ground.0.join("going/a/keep").exists());
    // Another directory takes the place.
    #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
    fs::rename(ground.0.join("going"), ground.0.join("elsewhere")).unwrap();
    ground.put("going/other", "1");
    assert!(top.remove(&mut |_| true).is_err());
    assert!(top.rename(OsStr::new("again")).is_err());
    assert!(ground.0.join("going/other").exists() && ground.0.join("elsewhere/a/keep").exists());
}

/// Swaps a folder for a link that leads out, and back, as fast as it can.
fn swap(ground: &Path, stop: &AtomicBool, done: &AtomicUsize) {
    let (here, other) = (ground.join("top/sub"), ground.join("other"));
    while !stop.load(Ordering::Relaxed) {
        match rustix::fs::renameat_with(CWD, &here, CWD, &other, RenameFlags::EXCHANGE) {
            Ok(()) => {
                done.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                // One of the two was removed: both are made again, whichever is missing.
                let _ = symlink(ground.join("outside"), &other);
                let _ = fs::create_dir_all(&here);
            }
        }
    }
}

/// Ends the attacker also when the test fails, which would else wait for it for ever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn swaps_that_race_reading_and_removing_lead_nowhere() {
    let ground = Ground::new("race");
    let secret = ground.put("outside/file", "outside");
    ground.put("outside/deep/file", "outside");
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&ground.0, &stop, &done));
        let _stop = Stop(&stop);
        let mut rounds = 0;
        while done.load(Ordering::Relaxed) < swaps() {
            rounds += 1;
            let _ = fs::create_dir_all(ground.0.join("top/sub/deep"));
            let Ok(top) = Top::open(&ground.0.join("top")) else { continue };
            for path in ["sub/file", "sub/deep/file"] {
                let _ = top.put(Path::new(path), &mut &b"inside"[..], 0o600, true);
                if let Ok((mut file, _)) = top.open_file(Path::new(path)) {
                    let mut text = Vec::new();
                    let mut take = |piece: &[u8]| {
                        text.extend_from_slice(piece);
                        Ok(())
                    };
                    read_through(&mut file, &mut take).unwrap();
                    assert_eq!(text, b"inside", "read outside in round {rounds}");
                }
                let _ = top.walk(true).map(|all| {
                    let outside = crate::file::place(&secret).unwrap();
                    assert!(all.iter().all(|s| (s.key.device, s.key.inode) != outside), "walked outside");
                });
            }
            let _ = top.remove(&mut |_| true);
            assert_eq!(fs::read(&secret).unwrap(), b"outside", "round {rounds}");
            assert_eq!(fs::read(ground.0.join("outside/deep/file")).unwrap(), b"outside", "round {rounds}");
            assert_eq!(fs::read_dir(ground.0.join("outside")).unwrap().count(), 2, "round {rounds}");
        }
    });
}
