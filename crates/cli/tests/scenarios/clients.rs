//! Programs that others wrote, let loose on lariat: a fuzzer that reads the OpenAPI document, a parser
//! of Prometheus's text, a client of the Model Context Protocol, and curl as the documents say.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};

use lariat_testkit::{Lookalike, Sandbox};
use serde_json::json;

use crate::asking::{LARIAT, ask, id, list};
use crate::claude_store::ClaudeStore;
use crate::http::Served;

/// A program that `make clients` installed.
fn client(name: &str) -> PathBuf {
    let built = Path::new(LARIAT).ancestors().nth(2).expect("where it is built");
    let path = built.join("clients/bin").join(name);
    assert!(path.exists(), "{} is not there; `make clients` installs it", path.display());
    path
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn well(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// `LARIAT_EXAMPLES` is how often each route is tried; a campaign sets it high.
#[test]
fn a_fuzzer_finds_no_server_error_and_nothing_undocumented() {
    let examples = std::env::var("LARIAT_EXAMPLES").unwrap_or_else(|_| "4".into());
    let sandbox = Sandbox::new("fuzz");
    let claude = ClaudeStore::of(&sandbox);
    drop(claude.session(&id(1)).asked("go").answered("done"));
    let served = Served::start(&sandbox);
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    let mut command = Command::new(client("st"));
    command.arg("run").arg(root().join("docs/openapi.json")).current_dir(sandbox.root()).env("NO_COLOR", "1");
    command.args(["--url", &format!("http://127.0.0.1:{}", served.port), "--checks", checks]);
    command.args(["-H", &format!("Authorization: Bearer {}", served.token), "--exclude-path", "/v1/events"]);
    command.args(["--phases", "fuzzing", "--max-examples", &examples, "--request-timeout", "30", "--seed", "1"]);
    let said = well(&command.output().expect("it runs"));
    println!("{}", said.lines().rev().take(12).collect::<Vec<_>>().join("\n"));
    assert_eq!(served.get("/v1/status").status, 200, "and it still answers");
    let errors = ask(&sandbox, &["daemon", "status", "--json"]).json()["errors"].to_string();
    assert!(!errors.contains("panic"), "{errors}");
}

#[test]
fn prometheus_reads_what_metrics_tell() {
    let sandbox = Sandbox::new("prom");
    let served = Served::start(&sandbox);
    let metrics = served.get("/metrics");
    let file = sandbox.root().join("metrics.txt");
    fs::write(&file, &metrics.body).expect("a file");
    let script = "import sys\n\
        from prometheus_client.parser import text_string_to_metric_families as parse\n\
        families = {f.name: f for f in parse(open(sys.argv[1]).read())}\n\
        assert all(f.type in ('gauge', 'counter') and f.documentation for f in families.values()), families\n\
        assert all(f.samples for f in families.values() if f.name != 'lariat_events'), families\n\
        words = {s.labels['status'] for s in families['lariat_sessions'].samples}\n\
        assert words == {'waiting', 'working', 'starting', 'idle', 'unknown'}, words\n\
        assert families['lariat_memory_bytes'].samples[0].value > 1e6\n\
        print(len(families))";
    let said = well(&Command::new(client("python3")).arg("-c").arg(script).arg(&file).output().expect("it runs"));
    assert!(said.trim().parse::<u32>().expect("a count") >= 12, "{said}");
}

#[test]
fn a_client_of_the_model_context_protocol_lists_launches_and_stops() {
    let python = client("python3");
    let sandbox = Sandbox::new("mcpreal");
    drop(Lookalike::program(&sandbox, "claude"));
    let place = sandbox.project("proj");
    let script = root().join("crates/cli/tests/clients/drive.py");
    // The server is in the sandbox, the client is not: a port lies between, and both come to it.
    let door = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = door.local_addr().expect("an address").port().to_string();
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; exec {LARIAT} mcp <&3 >&3");
    let _server = sandbox.spawn(&sandbox.program("bash").args(["-c", &line]));
    let (server, _) = door.accept().expect("the server");
    let said = std::thread::scope(|scope| {
        scope.spawn(|| pass_on(&door, &server));
        let output = Command::new(&python).arg(script).arg(&port).arg(&place).output();
        // Nobody waits for a client that never came.
        drop(TcpStream::connect(format!("127.0.0.1:{port}")));
        well(&output.expect("it runs"))
    });
    let told: serde_json::Value = serde_json::from_str(said.trim()).expect("JSON");
    let tools: Vec<&str> = told["tools"].as_array().expect("tools").iter().filter_map(|t| t.as_str()).collect();
    for tool in ["list", "status", "launch", "stop", "send", "wait", "peek", "explain"] {
        assert!(tools.contains(&tool), "{tools:?}");
    }
    assert_eq!(told["status"], json!("starting"), "{told}");
    assert_eq!(told["refused"], json!(true), "a second launch in the same place: {told}");
    list(&sandbox).expect(told["native_id"].as_str().expect("an id"), "stopped", None);
}

/// Passes on what a client behind the door says and is told, until it leaves.
fn pass_on(door: &TcpListener, server: &TcpStream) {
    let (client, _) = door.accept().expect("the client");
    std::thread::scope(|scope| {
        scope.spawn(|| io::copy(&mut &*server, &mut &client));
        io::copy(&mut &client, &mut &*server).expect("the server hears it");
        server.shutdown(Shutdown::Write).expect("it has left");
    });
}

/// The examples of docs/daemon.md, as a reader would type them: only the port, the directory and the
/// session's name are this test's own.
#[test]
fn curl_does_what_the_documents_say() {
    let sandbox = Sandbox::new("curl");
    drop(Lookalike::program(&sandbox, "claude"));
    let place = sandbox.project("proj");
    let served = Served::start(&sandbox);
    let text = fs::read_to_string(root().join("docs/daemon.md")).expect("the document");
    let text = text.replace("\\\n", " ");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| l.starts_with("curl ")).collect();
    assert!(lines.len() >= 5, "{lines:?}");
    let mut handle = String::new();
    for line in lines {
        let line =
            line.replace("4700", &served.port.to_string()).replace("/home/me/proj", place.to_str().expect("UTF-8"));
        let line = line.replace("brisk-heron", &handle);
        let streams = line.contains("/v1/events");
        // A stream has no end of its own.
        let line = if streams { line.replace("curl ", "curl --max-time 1 ") } else { line };
        let shell = format!("TOKEN=$({LARIAT} daemon token); {} -sS -w '\\n%{{http_code}}'", line);
        let ran = sandbox.run(["sh", "-c", &shell]);
        let (body, status) = ran.stdout.trim_end().rsplit_once('\n').unwrap_or(("", &ran.stdout));
        assert_eq!(status, "200", "{line}: {} {}", ran.stdout, ran.stderr);
        if streams {
            assert!(body.contains("event: reset"), "{line}: {body}");
        } else if line.contains("/metrics") {
            assert!(body.contains("lariat_sessions{"), "{line}: {body}");
        } else {
            let told: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{line}: {e}: {body}"));
            if let Some(new) = told["handle"].as_str().filter(|_| line.contains(" -d ")) {
                handle = new.to_owned();
            }
        }
    }
    assert!(!handle.is_empty(), "one of them launches");
}
