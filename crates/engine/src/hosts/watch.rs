//! Hosts that are asked again and again, for one who stays: the list on a terminal must not stand
//! still because a machine far away does.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use lariat_adapters::look::{Places, Scope};

use crate::hosts::Fleet;
use crate::hosts::ask::{self, Heard};

/// How long after an answer they are asked again: each time is a new connection, unless the user's
/// ssh keeps one.
const BETWEEN: Duration = Duration::from_secs(5);

/// One who asks, in a thread of its own, and knows what was heard last.
#[derive(Debug, Default)]
pub struct Watch {
    asking: Option<(Scope, Arc<Shared>)>,
}

#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<(Option<Heard>, bool)>,
    stirred: Condvar,
}

impl Watch {
    /// What hosts said last; the first time, it is waited for. `None` where there is no host.
    pub fn hear(&mut self, places: &Places, only: Option<&str>, scope: Scope, deadline: Duration) -> Option<Heard> {
        if Fleet::read(places).is_none() {
            self.end();
            return None;
        }
        if self.asking.as_ref().is_none_or(|(asked, _)| *asked != scope) {
            self.end();
            let shared = Arc::new(Shared::default());
            let (telling, places, only) = (Arc::clone(&shared), places.clone(), only.map(str::to_owned));
            let work = move || telling.ask(&places, only.as_deref(), scope, deadline);
            std::thread::Builder::new().name("hosts".into()).spawn(work).ok()?;
            self.asking = Some((scope, shared));
        }
        let (_, shared) = self.asking.as_ref()?;
        let heard = shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = shared.stirred.wait_while(heard, |(heard, ended)| heard.is_none() && !*ended);
        heard.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn end(&mut self) {
        if let Some((_, shared)) = self.asking.take() {
            shared.heard.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
            shared.stirred.notify_all();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn ask(&self, places: &Places, only: Option<&str>, scope: Scope, deadline: Duration) {
        while let Some(fleet) = Fleet::read(places) {
            let now = ask::list(fleet, only, places, scope, deadline).heard();
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.0 = Some(now);
            self.stirred.notify_all();
            let waited = self.stirred.wait_timeout_while(heard, BETWEEN, |(_, ended)| !*ended);
            if waited.map_or(true, |(heard, _)| heard.1) {
                return;
            }
        }
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.stirred.notify_all();
    }
}
