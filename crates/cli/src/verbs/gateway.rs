//! `lariat gateway pair`: introduces this machine to a gateway that grants nothing to strangers.

use lariat_adapters::look::Scope;
use lariat_adapters::openclaw::{self, Paired, Unasked};
use lariat_core::Untrusted;
use serde::Serialize;

use crate::Done;
use crate::args::{Common, GatewayVerb};
use crate::output::{Failure, Out};
use crate::verbs::question;

/// Its owner has to approve it first.
const REFUSED: u8 = 3;

#[derive(Serialize)]
struct Told<'a> {
    schema: u32,
    gateway: &'a str,
    device: &'a str,
    made: bool,
    paired: bool,
    request: Option<&'a str>,
    lacking: Option<Untrusted>,
}

pub fn run(verb: &GatewayVerb, common: &Common, out: &mut Out) -> Done {
    let GatewayVerb::Pair { name } = verb;
    let places = question(common, Scope::All).places;
    let paired = openclaw::pair(&places, name.as_deref()).map_err(|unasked| match unasked {
        Unasked::Settings(why) => Failure::Usage(why),
        Unasked::Failed(why) => anyhow::anyhow!("{}", Untrusted::new(why).row()).into(),
    })?;
    let Paired { gateway, device, made, lacking, request } = &paired;
    if out.json {
        out.told(&Told {
            schema: 1,
            gateway,
            device,
            made: *made,
            paired: lacking.is_none(),
            request: request.as_deref(),
            lacking: lacking.as_deref().map(Untrusted::new),
        })?;
    } else {
        let gateway = Untrusted::new(gateway.as_str()).row();
        let short = &device[..device.len().min(12)];
        if *made {
            out.line(format_args!("made a key for {gateway}: device {short}"))?;
        }
        match lacking {
            None => out.line(format_args!("{gateway} knows this device ({short})"))?,
            Some(why) => out.line(format_args!("{gateway}: {}", Untrusted::new(why.as_str()).row()))?,
        }
    }
    Ok(if lacking.is_some() { REFUSED } else { 0 })
}
