//! `lariat host`: the machines whose lariat is asked too.

use lariat_adapters::look::Places;
use lariat_core::{Time, Untrusted};
use lariat_engine::hosts::ssh::Unreached;
use lariat_engine::hosts::{self, Host, ask};
use lariat_sys::clock;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, HostVerb};
use crate::output::{Failure, Ink, Out, complain};
use crate::verbs::{there, warn};

/// It is kept, and cannot be reached.
const UNREACHED: u8 = 5;

#[derive(Serialize)]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<u32>,
    name: &'a str,
    destination: &'a str,
    lariat: Option<&'a str>,
    added_at: Time,
    reachable: bool,
    version: Option<&'a str>,
    error: Option<String>,
}

impl<'a> Told<'a> {
    fn of(host: &'a Host, answer: &'a Result<String, Unreached>) -> Told<'a> {
        Told {
            schema: None,
            name: &host.name,
            destination: &host.destination,
            lariat: host.lariat.as_deref(),
            added_at: host.at,
            reachable: answer.is_ok(),
            version: answer.as_deref().ok(),
            error: answer.as_ref().err().map(Unreached::told),
        }
    }
}

pub fn run(verb: &HostVerb, common: &Common, out: &mut Out) -> Done {
    let places = Places::from_env();
    match verb {
        HostVerb::Add { name, destination, lariat } => {
            let destination = destination.as_ref().unwrap_or(name).clone();
            hosts::fits(name, &destination).map_err(Failure::Usage)?;
            let lariat = lariat.clone().filter(|path| !path.is_empty());
            let host = Host { name: name.clone(), destination, lariat, at: Time(clock::now_ms()) };
            add(&host, &places, common, out)
        }
        HostVerb::Ls => list(&places, common, out),
        HostVerb::Rm { name } => remove(name, &places, out),
    }
}

fn add(host: &Host, places: &Places, common: &Common, out: &mut Out) -> Done {
    let before = hosts::read(places).0.into_iter().find(|h| h.name == host.name);
    hosts::put(places, host)
        .map_err(|e| anyhow::anyhow!("the host was not kept: {}: {e}", hosts::place(places).display()))?;
    let answer = ask::version(host, common.deadline);
    let code = if answer.is_ok() { 0 } else { UNREACHED };
    if out.json {
        out.json(&Told { schema: Some(1), ..Told::of(host, &answer) })?;
        return Ok(code);
    }
    let word = if before.is_some() { "changed" } else { "added" };
    match answer {
        Ok(version) => {
            out.line(format_args!("{word} {}: lariat {version} answers at {}", host.name, shown(host)))?;
        }
        Err(unreached) => {
            out.line(format_args!("{word} {}, which cannot be reached now", host.name))?;
            out.flush()?;
            complain(format_args!("warning: {}: {}", host.name, unreached.told()));
        }
    }
    Ok(code)
}

fn list(places: &Places, common: &Common, out: &mut Out) -> Done {
    let (hosts, warnings) = hosts::read(places);
    let answers = ask::versions(&hosts, common.deadline);
    let unreached = answers.iter().any(Result::is_err);
    if out.json {
        #[derive(Serialize)]
        struct All<'a> {
            schema: u32,
            hosts: Vec<Told<'a>>,
            warnings: &'a [lariat_core::Warning],
        }
        let hosts = hosts.iter().zip(&answers).map(|(host, answer)| Told::of(host, answer)).collect();
        out.json(&All { schema: 1, hosts, warnings: &warnings })?;
    } else {
        for (host, answer) in hosts.iter().zip(&answers) {
            let told = match answer {
                Ok(version) => format!("lariat {version}"),
                Err(unreached) => out.ink(Ink::Odd, unreached.told()),
            };
            out.line(format_args!("{:<16} {:<24} {told}", host.name, shown(host)))?;
        }
        if hosts.is_empty() {
            out.line("No hosts. `lariat host add NAME [user@machine]` names one.")?;
        }
        out.flush()?;
        warn(&warnings);
    }
    Ok(if unreached || !warnings.is_empty() { UNREACHED } else { 0 })
}

fn remove(name: &str, places: &Places, out: &mut Out) -> Done {
    if !hosts::remove(places, name)? {
        return Err(there::no_host(name));
    }
    if out.json {
        out.json(&serde_json::json!({"schema": 1, "name": name, "removed": true}))?;
    } else {
        out.line(format_args!("{name} is forgotten; its sessions go on"))?;
    }
    Ok(0)
}

fn shown(host: &Host) -> String {
    Untrusted::new(host.destination.as_str()).row()
}
