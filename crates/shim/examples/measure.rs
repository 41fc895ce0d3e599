//! What a shim costs: `measure PROGRAM [SESSIONS]`, where PROGRAM is a release build of lariat.
//!
//! Prints, for this machine and this run: the memory (PSS) of an idle shim and its keeper, the
//! time from starting a shim to the agent's first instruction and to its answer, each beside the
//! time of starting the same program directly, and the rate of 100 MB through an attached
//! terminal.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use lariat_shim::client::{Client, Event};
use lariat_shim::record::{self, Launch, Process};
use lariat_shim::start;
use lariat_shim::wire::{Attach, Size};
use rustix::time::{ClockId, clock_gettime};

const SIZE: Size = Size { rows: 40, cols: 120 };

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, file] = &args[..]
        && flag == "--stamp"
    {
        return fs::write(file, now_ns().to_string()).unwrap();
    }
    let program = PathBuf::from(args.get(1).expect("a lariat to measure"));
    let sessions = args.get(2).map_or(50, |n| n.parse().unwrap());
    let place = std::env::temp_dir().join(format!("lariat-measure-{}", std::process::id()));
    fs::create_dir_all(place.join("run")).unwrap();
    fs::set_permissions(place.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    launches(&program, &place);
    throughput(&program, &place);
    memory(&program, &place, sessions);
    fs::remove_dir_all(&place).unwrap();
}

fn now_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

fn session(place: &Path, handle: &str, argv: &[&str]) -> (PathBuf, Launch) {
    let folder = place.join(handle);
    fs::create_dir_all(&folder).unwrap();
    let launch = Launch {
        version: record::VERSION,
        handle: handle.to_owned(),
        argv: argv.iter().map(|&a| a.to_owned()).collect(),
        cwd: place.to_owned(),
        env: vec![("PATH".into(), std::env::var("PATH").unwrap())],
        headless: false,
        rows: SIZE.rows,
        cols: SIZE.cols,
        socket: place.join("run").join(handle),
        output: 4 << 20,
        after: None,
    };
    fs::write(folder.join(record::LAUNCH), serde_json::to_vec(&launch).unwrap()).unwrap();
    (folder, launch)
}

fn middle(mut times: Vec<i64>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1e6
}

fn launches(program: &Path, place: &Path) {
    let me = std::env::current_exe().unwrap();
    let stamp = place.join("stamp");
    let (mut direct, mut first, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..100 {
        let began = now_ns();
        assert!(Command::new(&me).arg("--stamp").arg(&stamp).status().unwrap().success());
        let stamped = || fs::read_to_string(&stamp).unwrap().parse::<i64>().unwrap();
        direct.push(stamped() - began);
        fs::remove_file(&stamp).unwrap();
        let argv = [me.to_str().unwrap(), "--stamp", stamp.to_str().unwrap()];
        let (folder, launch) = session(place, &format!("l{n}"), &argv);
        let began = now_ns();
        start::start(program, &folder, &[]).unwrap();
        told.push(now_ns() - began);
        wait_for_end(&folder, &launch);
        first.push(stamped() - began);
    }
    println!(
        "start to the agent's first instruction: {:.2} ms; the same program directly: {:.2} ms",
        middle(first),
        middle(direct)
    );
    println!("start to `started`, with shim.json durable: {:.2} ms", middle(told));
}

fn wait_for_end(folder: &Path, launch: &Launch) {
    if let Ok(mut client) = Client::connect(&launch.socket) {
        while !matches!(client.next(), Ok(Event::Closed | Event::Exited(_)) | Err(_)) {}
    }
    while !folder.join(record::EXIT).exists() {
        std::thread::yield_now();
    }
}

fn throughput(program: &Path, place: &Path) {
    let file = place.join("bytes");
    let line = b"the quick brown fox jumps over the lazy dog and goes on to the end of line\n";
    fs::write(&file, line.repeat(100_000_000 / line.len())).unwrap();
    let size = fs::metadata(&file).unwrap().len();
    for attached in [true, false] {
        for n in 0..3 {
            let script = format!("stty raw -echo; echo ready; head -c 1 >/dev/null; cat {}", file.display());
            let (folder, launch) = session(place, &format!("t{attached}{n}"), &["sh", "-c", &script]);
            start::start(program, &folder, &[]).unwrap();
            let mut client = Client::connect(&launch.socket).unwrap();
            let mut seen = 0;
            if attached {
                client.attach(Attach { size: SIZE, watch: false, tail: 1 << 20 }).unwrap();
                while seen < 6 {
                    if let Event::Output(bytes) = client.next().unwrap() {
                        seen += bytes.len() as u64;
                    }
                }
            } else {
                while client.status().unwrap().output < 6 {}
            }
            let began = Instant::now();
            client.input(b"x").unwrap();
            loop {
                match client.next().unwrap() {
                    Event::Output(bytes) => seen += bytes.len() as u64,
                    Event::Exited(_) => break,
                    other => panic!("{other:?} after {seen}"),
                }
            }
            let took = began.elapsed();
            assert!(!attached || seen >= size, "{seen} of {size}");
            let how = if attached { "attached" } else { "detached" };
            println!("{size} bytes {how}: {took:.0?}, {:.0} MB/s", size as f64 / took.as_secs_f64() / 1e6);
        }
    }
}

fn memory(program: &Path, place: &Path, sessions: usize) {
    let script = "stty -echo; seq 1 2000; read x";
    let started: Vec<_> = (0..sessions)
        .map(|n| {
            let (folder, launch) = session(place, &format!("m{n}"), &["sh", "-c", script]);
            let shim = start::start(program, &folder, &[]).unwrap();
            let mut client = Client::connect(&launch.socket).unwrap();
            while client.status().unwrap().output < 10_893 {} // all lines are there
            (folder, launch, shim)
        })
        .collect();
    let sum = |of: &dyn Fn(&record::Shim) -> Option<Process>| -> f64 {
        started.iter().filter_map(|(_, _, s)| of(s)).map(|p| pss(p.pid)).sum::<f64>() / sessions as f64
    };
    let (shim, keeper) = (sum(&|s| Some(s.shim.clone())), sum(&|s| s.keeper.clone()));
    println!(
        "{sessions} idle sessions, 2,000 lines each: shim {shim:.0} kB, keeper {keeper:.0} kB, together {:.0} kB PSS each",
        shim + keeper
    );
    for (folder, launch, _) in &started {
        Client::connect(&launch.socket).unwrap().input(b"\n").unwrap();
        wait_for_end(folder, launch);
    }
}

fn pss(pid: u32) -> f64 {
    let told = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = told.lines().find_map(|l| l.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
