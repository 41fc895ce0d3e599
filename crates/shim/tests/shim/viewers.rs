//! Many may look, some may type; nobody holds up the agent for good.

use std::sync::mpsc;

use lariat_shim::client::{Client, Event};
use lariat_shim::wire::{Attach, Size};
use lariat_testkit::{DEADLINE, wait_until};

use crate::place::{Place, SIZE};

#[test]
fn all_viewers_see_the_same_and_only_watchers_cannot_type() {
    let place = Place::new("two");
    let session =
        place.script("a", "stty -echo; echo ready; while read x; do echo \"got $x\"; [ $x = end ] && exit 5; done");
    session.start();
    let (mut a, mut b, mut w) = (session.attach(SIZE), session.attach(SIZE), session.watch(SIZE));
    for viewer in [&mut a, &mut b, &mut w] {
        viewer.wait_for("ready");
    }
    w.type_text("watcher\n");
    assert_eq!(w.client.status().unwrap().watchers, 1); // its typing was heard before this answer
    a.type_text("one\n");
    for viewer in [&mut a, &mut b, &mut w] {
        viewer.wait_for("got one");
    }
    b.type_text("two\n");
    for viewer in [&mut a, &mut b, &mut w] {
        viewer.wait_for("got two");
    }
    let status = a.client.status().unwrap();
    assert_eq!((status.viewers, status.watchers, status.kept, status.lost), (3, 1, true, 0));
    // Typing needs no seeing: this is how `send` does it.
    session.client().input(b"end\n").unwrap();
    for viewer in [&mut a, &mut b, &mut w] {
        match viewer.rest() {
            Event::Exited(exit) => assert_eq!(exit.code, Some(5)),
            other => panic!("{other:?}"),
        }
        let seen = String::from_utf8_lossy(&viewer.seen).into_owned();
        assert!(seen.contains("got end") && !seen.contains("watcher"), "{seen}");
    }
    assert_eq!(session.exit_now().expect("on record before it is announced").code, Some(5));
}

#[test]
fn who_comes_later_sees_what_was_before() {
    let place = Place::new("later");
    let session = place.script("a", "stty -echo; echo first; read x; echo second; read x");
    session.start();
    let mut a = session.attach(SIZE);
    a.wait_for("first");
    a.type_text("\n");
    a.wait_for("second");
    a.client.detach().unwrap();
    let mut b = session.attach(SIZE);
    b.wait_for("first\r\nsecond");
}

#[test]
fn one_that_reads_nothing_is_dropped_and_the_agent_goes_on() {
    let place = Place::new("slow");
    // More than the ring, the socket and the viewer's patience hold.
    let script = "stty raw -echo; echo ready; head -c 1 >/dev/null; head -c 20000000 /dev/zero | tr '\\0' x; echo done; head -c 1 >/dev/null";
    let session = place.script("a", script);
    session.start();
    let (mut slow, mut stuck, mut fast) = (session.attach(SIZE), session.watch(SIZE), session.attach(SIZE));
    for viewer in [&mut slow, &mut stuck, &mut fast] {
        viewer.wait_for("ready");
    }
    fast.type_text("x");
    fast.wait_for("done");
    let status = fast.client.status().unwrap();
    assert_eq!(status.viewers, 1, "the other two are on their way out");
    assert!(status.output > 20_000_000);
    match slow.rest() {
        Event::Dropped(why) => assert!(why.contains("took nothing"), "{why}"),
        other => panic!("{other:?}"),
    }
    match stuck.rest() {
        Event::Dropped(why) => assert!(why.contains("too far behind"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(slow.seen.len() < 4 << 20, "{}", slow.seen.len());
    fast.type_text("x");
    assert!(matches!(fast.rest(), Event::Exited(_)));
}

#[test]
fn one_that_reads_slowly_but_surely_sees_every_byte() {
    let place = Place::new("sure");
    let script = "stty raw -echo; echo ready; head -c 1 >/dev/null; seq 1 1000000; echo done; head -c 1 >/dev/null";
    let session = place.script("a", script);
    session.start();
    let mut viewer = session.attach(SIZE);
    viewer.wait_for("ready\n");
    viewer.type_text("x");
    viewer.wait_for("1\n"); // searching what was seen again and again is slow enough
    let mut text = "1\n".to_owned();
    loop {
        match viewer.client.next().unwrap() {
            Event::Output(bytes) => viewer.seen.extend_from_slice(bytes),
            other => panic!("{other:?}"),
        }
        if viewer.seen.ends_with(b"done\n") {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&viewer.seen).unwrap());
    let wanted: String = (1..=1_000_000).map(|n| format!("{n}\n")).chain(["done\n".to_owned()]).collect();
    assert!(text == wanted, "{} bytes of {}", text.len(), wanted.len());
}

#[test]
fn the_last_to_type_sets_the_size_and_watchers_never_do() {
    let place = Place::new("size");
    let session = place.script("a", "stty -echo; echo ready; while read x; do echo \"size $(stty size)\"; done");
    session.start();
    let size = |rows, cols| Size { rows, cols };
    let mut w = session.watch(size(10, 10));
    w.wait_for("ready");
    w.client.resize(size(11, 11)).unwrap();
    assert_eq!(w.client.status().unwrap().size, SIZE, "watchers never resize");
    let mut a = session.attach(size(30, 100));
    a.wait_for("ready");
    a.type_text("\n");
    a.wait_for("size 30 100\r\n");
    let mut b = session.attach(size(40, 120));
    b.wait_for("size 30 100\r\n");
    assert_eq!(b.client.status().unwrap().size, size(30, 100), "b has not typed");
    b.client.resize(size(41, 121)).unwrap();
    b.type_text("\n");
    a.wait_for("size 41 121\r\n");
    a.client.resize(size(31, 101)).unwrap();
    assert_eq!(a.client.status().unwrap().size, size(41, 121), "b typed last");
    b.client.resize(size(42, 122)).unwrap();
    assert_eq!(b.client.status().unwrap().size, size(42, 122));
    a.type_text("\n");
    a.wait_for("size 31 101\r\n");
    a.client.detach().unwrap();
    let mut c = session.client();
    // Once a's leaving was seen, whoever else may set it does.
    lariat_testkit::wait_until("b's size", lariat_testkit::DEADLINE, || c.status().unwrap().size == size(42, 122));
}

#[test]
fn one_who_came_first_and_only_watches_now_keeps_no_size() {
    let place = Place::new("watches");
    let session = place.script("a", "stty -echo; echo ready; while read x; do echo \"size $(stty size)\"; done");
    session.start();
    let size = |rows, cols| Size { rows, cols };
    // Before it is shown anything, it says how large it is: that is for when it types.
    let mut early = session.client();
    early.resize(size(12, 12)).unwrap();
    assert_eq!(early.status().unwrap().size, SIZE, "one who sees nothing sets nothing");
    early.attach(Attach { size: size(12, 12), watch: true, tail: 0 }).unwrap();
    assert_eq!(early.status().unwrap().size, SIZE);
    let mut first = session.attach(size(30, 100));
    first.wait_for("ready");
    assert_eq!(first.client.status().unwrap().size, size(30, 100), "a watcher was there first and is not in the way");
    first.client.attach(Attach { size: size(30, 100), watch: true, tail: 0 }).unwrap();
    first.client.resize(size(31, 101)).unwrap();
    assert_eq!(first.client.status().unwrap().watchers, 2);
    // The next one sets it by coming, as the first did.
    let mut second = session.attach(size(40, 120));
    second.wait_for("ready");
    assert_eq!(second.client.status().unwrap().size, size(40, 120));
    second.type_text("\n");
    second.wait_for("size 40 120\r\n");
}

#[test]
fn an_agent_draws_again_for_one_who_attaches_at_the_same_size() {
    let place = Place::new("draw");
    let script = "trap 'echo drawn $(stty size)' WINCH; mkfifo hold; cat <> hold & echo ready; while :; do wait; done";
    let session = place.script("a", script);
    session.start();
    let mut w = session.watch(SIZE);
    w.wait_for("ready");
    let mut a = session.attach(SIZE);
    a.wait_for("drawn 23 80");
    a.wait_for("drawn 24 80");
    let mut b = session.attach(SIZE);
    b.wait_for("drawn 24 80"); // of before
    b.wait_for("drawn 24 80");
}

#[test]
fn a_paste_of_any_size_arrives_whole() {
    let place = Place::new("paste");
    let session = place.script("a", "stty raw -echo; echo ready; head -c 1000000 | md5sum; head -c 1 >/dev/null");
    session.start();
    let mut viewer = session.attach(SIZE);
    viewer.wait_for("ready");
    let paste: Vec<u8> = (0..1_000_000u32).map(|n| b'a' + (n % 23) as u8).collect();
    viewer.client.input(&paste).unwrap();
    std::fs::write(place.work().join("paste"), &paste).unwrap();
    let sum = place.run(["md5sum", "paste"]).stdout;
    viewer.wait_for(sum.split(' ').next().unwrap());
}

#[test]
fn whoever_types_more_than_an_agent_takes_keeps_nobody_else_from_looking() {
    let place = Place::new("stuffed");
    let go = place.work().join("go");
    let reads = "stty raw -echo; mkfifo go; echo ready; read x < go; head -c 1000000 | wc -c";
    let session = place.script("a", reads);
    session.start();
    let mut looker = session.attach(SIZE);
    looker.wait_for("ready");
    let (typist, (tell, told)) = (session.client(), mpsc::channel());
    let typing = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        typist.input(&[b'x'; 1_000_000]).and_then(|()| typist.detach())
    });
    let state = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    let answers = || {
        let (socket, (tell, told)) = (session.launch.socket.clone(), mpsc::channel());
        std::thread::spawn(move || tell.send(Client::connect(&socket).unwrap().status().unwrap().viewers));
        told.recv_timeout(DEADLINE).expect("an answer")
    };
    // Whoever is heard between two answers types on: one that never does, and has not typed all, is not.
    let rests = || answers() == 1 && std::fs::read_to_string(&state).is_ok_and(|s| s.contains(") S "));
    wait_until("more to be typed than the agent takes", DEADLINE, || (0..10).all(|_| rests()));
    session.watch(SIZE).wait_for("ready");
    assert!(!typing.is_finished());
    std::fs::write(go, "\n").unwrap();
    looker.wait_for("1000000");
    typing.join().unwrap().unwrap();
}

#[test]
fn an_agent_without_a_terminal_is_not_attached_to() {
    let place = Place::new("none");
    let session = place.script("a", "mkfifo hold; read x < hold").headless();
    session.start();
    assert!(session.client().status().unwrap().headless);
    match session.attach(SIZE).rest() {
        Event::Dropped(why) => assert!(why.contains("no terminal"), "{why}"),
        other => panic!("{other:?}"),
    };
}

#[test]
fn noise_on_the_socket_harms_nobody() {
    use std::io::{Read as _, Write as _};
    let place = Place::new("noise");
    let session = place.script("a", "stty -echo; echo ready; read x; echo alive");
    session.start();
    let mut good = session.attach(SIZE);
    good.wait_for("ready");
    let hello = |payload: &[u8]| [&[0, payload.len() as u8, 0, 0, 0], payload].concat();
    let right = hello(b"lariat\x01\x00test");
    let bad = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        hello(b"other!\x01\x00"),
        [2, 1, 0, 0, 0, b'x'].to_vec(),
        [&right[..], &[1, 3, 0, 0, 0, 1, 2, 3]].concat(),
        [&right[..], &[2, 255, 255, 255, 255]].concat(),
        [&right[..], &[17, 0, 0, 0, 0]].concat(),
    ];
    for noise in bad {
        let mut stream = std::os::unix::net::UnixStream::connect(&session.launch.socket).unwrap();
        stream.write_all(&noise).unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard); // closed by the shim, or reset
        assert!(heard.len() < 64);
    }
    // A later program's word is skipped.
    let mut stream = std::os::unix::net::UnixStream::connect(&session.launch.socket).unwrap();
    stream.write_all(&[&right[..], &[99, 1, 0, 0, 0, 7], &[2, 1, 0, 0, 0, b'\n']].concat()).unwrap();
    good.wait_for("alive");
}
