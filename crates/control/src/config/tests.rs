use super::*;

fn errors(text: &str) -> String {
    Config::from_text("evener.toml", text).expect_err("the configuration is wrong").to_string()
}

const GOOD: &str = r#"
[listener.web]
bind = "127.0.0.1:8080"
pool = "app"
[pool.app]
node = [ { name = "rat", address = "10.0.0.1:80", weight = 5 }, { address = "10.0.0.2:80" } ]
"#;

#[test]
fn a_short_file_gets_defaults() {
    let config = Config::from_text("evener.toml", GOOD).unwrap();
    let pool = &config.pools[0];
    assert_eq!(pool.nodes[0].weight.value(), 5);
    assert_eq!(pool.nodes[1].name, "10.0.0.2:80");
    assert_eq!(pool.scheduler.policy.name(), "informed");
    assert!(config.admin.is_none());
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn every_error_says_where_what_and_how() {
    let text = r#"
[process]
worker = 2
[listener.web]
bind = "8080"
pool = "ap"
[pool.app]
scheduler = "least-job"
check = { http = "/health" }
node = [ { name = "rat", address = "10.0.0.1:80", weight = "heavy" }, { name = "rat", address = "10.0.0.2" } ]
timeouts = { connect = "2 parsecs" }
"#;
    insta::assert_snapshot!(errors(text));
}

#[test]
fn a_syntax_error_has_its_place() {
    insta::assert_snapshot!(errors("[listener.web]\nbind = \n"));
}

#[test]
fn the_admin_api_stays_on_this_machine_unless_insisted() {
    let remote = |more: &str| {
        Config::from_text("evener.toml", &format!("[admin]\nlisten = \"0.0.0.0:9900\"\n{more}{GOOD}"))
    };
    assert!(remote("").unwrap_err().to_string().contains("allow_remote = true"));
    assert!(remote("allow_remote = true\n").is_ok());
}

#[test]
fn files_beside_the_first_add_to_it_but_do_not_replace() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("conf.d")).unwrap();
    let main = folder.path().join("evener.toml");
    std::fs::write(&main, GOOD).unwrap();
    let more = folder.path().join("conf.d/more.toml");
    std::fs::write(&more, "[pool.more]\nnode = [ { address = \"10.0.0.3:80\" } ]\n").unwrap();
    assert_eq!(Config::load(&main).unwrap().pools.len(), 2);
    std::fs::write(&more, "[pool.app]\nnode = [ { address = \"10.0.0.3:80\" } ]\n").unwrap();
    let errors = Config::load(&main).unwrap_err().to_string();
    assert!(errors.contains("more.toml:1:"), "{errors}");
    assert!(errors.contains("is defined already"), "{errors}");
}

#[test]
fn flags_make_the_same_configuration() {
    let flags = Flags {
        listen: vec!["http://127.0.0.1:8080".into()],
        to: vec!["127.0.0.1:9001,weight=3".into(), "127.0.0.1:9002".into()],
        scheduler: Some("round-robin".into()),
        workers: Some(1),
        ..Flags::default()
    };
    let config = flags.config().unwrap();
    assert_eq!(config.process.workers, 1);
    assert_eq!(config.pools[0].nodes[0].weight.value(), 3);
    let wrong = Flags { to: vec!["127.0.0.1:9001,heavy".into()], ..flags };
    insta::assert_snapshot!(wrong.config().unwrap_err().to_string());
}

#[test]
fn what_the_kernel_cannot_balance_is_refused() {
    let of = |output: &str, more: &str| {
        let node = "{ name = \"rat\", address = \"10.0.1.1:8000\" }";
        format!("[pool.app]\noutput = {{ ipvs = \"10.0.0.1:80\"{output} }}\nnode = [ {node}{more} ]\n")
    };
    let fits = |text: String| Config::from_text("evener.toml", &text).map(|_| ()).map_err(|e| e.to_string());
    assert_eq!(fits(of("", "")), Ok(()));
    for way in ["direct", "tunnel", "ipip"] {
        let error = errors(&of(&format!(", forwarding = \"{way}\""), ""));
        assert!(error.contains("node \"rat\": 10.0.1.1:8000 has another port"), "{error}");
    }
    let error = errors(&of("", ", { name = \"mole\", address = \"10.0.1.1:8000\" }"));
    assert!(error.contains("node \"mole\"") && error.contains("twice"), "{error}");
    let error = errors(&of("", ", { name = \"mole\", address = \"[fd00::1]:80\" }"));
    assert!(error.contains("only a tunnel can lead there"), "{error}");
    let joined = "[pool.app]\noutput = { ipvs = \"10.0.0.1:80\", forwarding = \"direct\" }\n\
                  join = { from = [\"10.0.1.0/24\"], port = 8000 }\n";
    let error = errors(joined);
    assert!(error.contains("join: ") && error.contains("expected port 80"), "{error}");
    assert_eq!(fits(joined.replace("8000", "80")), Ok(()));
}
