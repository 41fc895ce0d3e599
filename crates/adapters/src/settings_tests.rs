use super::*;

fn places() -> Places {
    Places {
        home: "/home/dev".into(),
        settings: "/home/dev/.config/lariat/config.toml".into(),
        gateway_url: None,
        gateway_token: false,
        ..Places::from_env()
    }
}

fn read(text: &str) -> Settings {
    Settings::of(text, &places())
}

fn wrong(text: &str) -> Vec<String> {
    read(text).warnings.iter().map(|w| w.error.raw().to_owned()).collect()
}

#[test]
fn several_gateways_each_with_its_own_token() {
    let settings = read(
        "[[gateway]]\nurl = \"ws://127.0.0.1\"\ntoken_env = \"A\"\n\n\
         [[gateway]]\nname = \"box\"\nurl = \"ws://box.lan:9/\"\ntoken_file = \"~/t\"\n\
         [[gateway]]\nname = \"far\"\nurl = \"ws://[::1]:7\"\nhost = \"vault\"\ntoken_file = \"t\"\n",
    );
    assert_eq!(settings.warnings, []);
    assert!(!settings.gateways_unread);
    let [a, b, c] = settings.gateways.as_slice() else { panic!("{settings:?}") };
    assert_eq!((a.url().as_str(), &a.name, &a.host), ("ws://127.0.0.1:18789", &None, &None));
    assert_eq!(a.token, Token::Env("A".into()));
    assert_eq!((b.url().as_str(), b.host.as_deref()), ("ws://box.lan:9", Some("box.lan")));
    assert_eq!(b.token, Token::File("/home/dev/t".into()));
    assert_eq!((c.url().as_str(), c.host.as_deref()), ("ws://[::1]:7", Some("vault")));
    assert_eq!(c.token, Token::File("/home/dev/.config/lariat/t".into()));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_spoils_nothing_else() {
    let text = "gatewy = 1\n[[gateway]]\nurl = \"ws://a:1\"\n[[gateway]]\nname = \"b\"\nulr = \"ws://b:1\"\n";
    assert_eq!(
        wrong(text),
        [
            "line 1: \"gatewy\" is no setting, did you mean \"gateway\"?",
            "line 6: \"ulr\" is no setting, did you mean \"url\"?",
            "line 4: a gateway needs its url, like \"ws://127.0.0.1:18789\"",
        ]
    );
    let settings = read(text);
    assert_eq!(settings.gateways.len(), 1, "the right one counts");
    assert!(settings.gateways_unread, "and one is missing");
}

#[test]
fn each_mistake_has_its_own_words() {
    let one = |lines: &str| {
        let found = wrong(&format!("[[gateway]]\n{lines}"));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    for (lines, words) in [
        ("url = 1", "line 2: url is an integer and should be text"),
        ("url = \"\"", "line 2: url is empty"),
        ("url = \"wss://a:1\"", "TLS is not spoken"),
        ("url = \"ws://me:pw@a:1\"", "no password in it"),
        ("url = \"ws://a:0\"", "should be like"),
        ("url = \"ws://a b:1\"", "should be like"),
        ("url = \"ftp://a:1\"", "should be like"),
        ("url = \"ws://a:1\"\nname = \"A/b\"", "line 3: name \"A/b\": small letters"),
        ("url = \"ws://a:1\"\ntoken_file = \"x\"\ntoken_env = \"y\"", "line 3: either token_file or token_env"),
        ("url = \"ws://a:1\"\ntoken = \"secret\"", "\"token\" is no setting"),
        ("url = \"ws://a:1\"\n[[gateway]]\nurl = \"ws://b:1\"", "line 3: only one gateway may go without a name"),
    ] {
        assert!(one(lines).contains(words), "{lines}: {}", one(lines));
    }
    assert!(!one("url = \"ws://me:pw@a:1\"").contains("pw"), "a password is not repeated");
    assert!(wrong("[gateway]\nurl = \"ws://a:1\"")[0].contains("two brackets"));
    assert!(wrong("gateway = [1]")[0].contains("an integer and should be a table"));
}

#[test]
fn a_file_that_is_no_toml_is_one_warning_with_its_line() {
    let settings = read("[[gateway]]\nurl = \"ws://a:1\"\n= =\n");
    let [only] = settings.warnings.as_slice() else { panic!("{settings:?}") };
    assert!(only.error.raw().starts_with("line 3: "), "{only:?}");
    assert!(settings.gateways.is_empty() && settings.gateways_unread);
}

#[test]
fn without_a_file_only_openclaws_own_variables_name_a_gateway() {
    let none = Places { settings: "/nowhere/config.toml".into(), ..places() };
    assert_eq!(Settings::read(&none).gateways, []);
    let token = Places { gateway_token: true, ..none.clone() };
    let found = Settings::read(&token).gateways;
    assert_eq!(found[0].url(), "ws://127.0.0.1:18789");
    assert_eq!(found[0].token, Token::Env("OPENCLAW_GATEWAY_TOKEN".into()));
    let url = Places { gateway_url: Some("ws://127.0.0.1:7".into()), ..none.clone() };
    assert_eq!(Settings::read(&url).gateways[0].token, Token::None);
    let odd = Places { gateway_url: Some("nonsense".into()), ..none };
    let settings = Settings::read(&odd);
    assert!(settings.warnings[0].error.raw().contains("OPENCLAW_GATEWAY_URL"), "{settings:?}");
}

#[test]
fn what_is_kept_and_brought_back_is_a_persons_choice() {
    let settings = read("max = 12\nrestore = \"auto\"\nretain = \"30d\"\n");
    assert_eq!(settings.warnings, []);
    assert_eq!((settings.max, settings.restore), (Some(12), Restore::Auto));
    assert_eq!(settings.retain, Some(Duration::from_secs(30 * 86_400)));
    assert_eq!(read("").restore, Restore::Ask);
    let text = "max = 0\nrestore = \"always\"\nretain = \"long\"\n";
    assert_eq!(
        wrong(text),
        [
            "line 1: max should be a whole number above 0",
            "line 3: retain should be a time like 500ms, 3s, 2m, 1h or 7d",
            "line 2: restore \"always\": one of \"ask\", \"auto\", \"never\"",
        ]
    );
    assert_eq!(
        (read(text).restore, read(text).unread),
        (Restore::Never, true),
        "what cannot be read brings nothing back"
    );
    assert_eq!((read("max = [").restore, read("max = [").unread), (Restore::Never, true));
    assert!(!read("[[gateway]]\nulr = 1").unread, "a gateway is no limit");
    assert!(!read(text).gateways_unread);
}

#[test]
fn who_is_to_be_told_and_of_what() {
    let settings = read(
        "[daemon]\nhttp = 4700\n\
         [[webhook]]\nurl = \"http://127.0.0.1:9/x\"\nevents = [\"session.*\"]\nsecret_env = \"S\"\n\
         [[webhook]]\nurl = \"https://example.org\"\n\
         [[command]]\nrun = \"true\"\nevents = [\"session.waiting\"]\n[notify]\ndesktop = true\n",
    );
    assert_eq!(settings.warnings, []);
    assert_eq!(settings.http, Some(4700));
    let [a, b, c, d] = settings.hooks.as_slice() else { panic!("{settings:?}") };
    assert!(a.wants("session.idle") && !a.wants("claim.taken") && b.wants("claim.taken"));
    assert_eq!((&a.secret, &b.secret), (&Token::Env("S".into()), &Token::None));
    assert!(c.wants("session.waiting") && !c.wants("session.idle"));
    assert!(d.told == Told::Desktop && d.wants("session.waiting") && !d.wants("session.ended"));
}

#[test]
fn a_hook_that_is_wrong_is_told_and_left_out() {
    for (text, why) in [
        ("[[webhook]]\n", "line 1: a webhook needs its url"),
        ("[[webhook]]\nurl = \"ftp://x\"", "line 2: url"),
        ("[[webhook]]\nurl = \"http://me:pw@x\"", "line 2: url"),
        ("[[webhook]]\nurl = \"http://x\"\nevents = [\"session.wait\"]", "did you mean \"session.waiting\""),
        ("[[webhook]]\nurl = \"http://x\"\nevents = \"session.idle\"", "a list of texts"),
        ("[[webhook]]\nurl = \"http://x\"\nsecret_env = \"A\"\nsecret_file = \"b\"", "not both"),
        ("[[command]]\nrun = 3", "should be text"),
        ("[notify]\ndesktop = \"yes\"", "true or false"),
        ("[daemon]\nhttp = 99999", "should be a port"),
        ("daemon = 3", "should be a table"),
    ] {
        let settings = read(text);
        assert!(settings.hooks.is_empty() && settings.http.is_none(), "{text}");
        assert!(wrong(text).iter().any(|w| w.contains(why)), "{text}: {:?}", wrong(text));
    }
}

#[test]
fn agents_that_speak_acp_each_with_its_command() {
    let text = "[[acp]]\nname = \"opencode\"\ncommand = [\"opencode\", \"acp\"]\n\
                [[acp]]\nname = \"opencode\"\ncommand = [\"other\"]\n\
                [[acp]]\nname = \"No Name\"\ncommand = [\"a\"]\n\
                [[acp]]\nname = \"x\"\ncommand = \"x --acp\"\n\
                [[acp]]\ncomand = []\n";
    let settings = read(text);
    let [only] = settings.acp.as_slice() else { panic!("{settings:?}") };
    assert_eq!((only.name.as_str(), only.command.join(" ").as_str()), ("opencode", "opencode acp"));
    assert_eq!(
        wrong(text),
        [
            "line 8: name \"No Name\": small letters, digits, '-', '_' and '.', 40 at most",
            "line 12: command should be a list like [\"opencode\", \"acp\"]",
            "line 14: \"comand\" is no setting, did you mean \"command\"?",
            "line 13: an acp needs its name",
            "line 13: an acp needs its command, like [\"opencode\", \"acp\"]",
            "line 4: a second acp is called \"opencode\"; this one is left out",
        ]
    );
}

#[test]
fn agents_that_are_only_described() {
    let text = "[[agent]]\nname = \"aider\"\ncommand = [\"aider\"]\nprompt = [\"--message\", \"{prompt}\"]\n\
                session_id = [\"--id\", \"{id}\"]\nresume = [\"--resume={id}\"]\ntranscripts = \"~/.aider/{id}.md\"\n\
                [[agent]]\nname = \"plain\"\ncommand = [\"plain\", \"-q\"]\nprompt = \"typed\"\n";
    let settings = read(text);
    assert_eq!(wrong(text), [""; 0]);
    let [aider, plain] = settings.described.as_slice() else { panic!("{settings:?}") };
    assert_eq!(filled(&aider.resume, "x"), ["--resume=x"]);
    assert_eq!(aider.prompt.words("do it"), Some(vec!["--message".to_owned(), "do it".to_owned()]));
    assert_eq!((&plain.prompt, plain.session_id.len()), (&Given::Typed, 0));
    let start = "[[agent]]\nname = \"x\"\ncommand = [\"x\"]\n";
    for (more, why) in [
        ("resume = [\"--continue\"]\nsession_id = [\"{id}\"]", "line 4: resume needs {id} in it"),
        ("resume = [\"{id}\"]", "line 1: resume needs session_id"),
        ("transcripts = \"~/.x\"\nsession_id = [\"{id}\"]", "no file is a session's because it is the newest"),
        ("transcripts = \"~/.x/{id}\"", "line 1: transcripts needs session_id"),
        ("prompt = \"argv\"", "line 4: prompt \"argv\": \"argument\", \"stdin\", \"typed\""),
        ("prompt = [\"-m\"]", "line 4: prompt needs {prompt} in it"),
        ("prompt = 3", "line 4: prompt is an integer"),
        ("sesion_id = [\"{id}\"]", "did you mean \"session_id\"?"),
        ("[[agent]]\nname = \"x\"\ncommand = [\"y\"]", "a second agent is called \"x\""),
        ("[[agent]]\nname = \"y\"", "line 4: an agent needs its command"),
    ] {
        let text = format!("{start}{more}");
        assert!(wrong(&text).iter().any(|w| w.contains(why)), "{text}: {:?}", wrong(&text));
    }
}
