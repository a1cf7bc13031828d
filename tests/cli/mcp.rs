//! The tools of an assistant, with messages as the Model Context Protocol has them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::host::{command, host};

struct Session {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    requests: u64,
}

impl Session {
    fn start(args: &[&str]) -> Self {
        let mut process = command(&[&["mcp"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut session = Self { process, input, output, requests: 0 };
        let reply = session.request(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {},
                    "clientInfo": {"name": "test", "version": "0"}}),
        );
        assert_eq!(reply["result"]["serverInfo"]["name"], "corver-host", "{reply}");
        assert_eq!(reply["result"]["protocolVersion"], "2025-06-18", "{reply}");
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let reply = self.receive();
        assert_eq!(reply["id"], id, "{reply}");
        reply
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The object that a tool returned, which its text has as well.
    fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let reply = self.call(tool, arguments);
        let result = &reply["result"];
        assert_eq!(result["isError"], false, "{reply}");
        let text = result["content"][0]["text"].as_str().unwrap();
        let content = result["structuredContent"].clone();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), content);
        content
    }

    fn error(&mut self, tool: &str, arguments: &Value) -> String {
        let reply = self.call(tool, arguments);
        assert_eq!(reply["result"]["isError"], true, "{reply}");
        reply["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes the input, upon which the server ends.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn tools_agree_with_the_commands() {
    let mut session = Session::start(&[]);
    let reply = session.request("tools/list", &json!({}));
    let tools = reply["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["check", "count", "find_passages"]);
    assert_eq!(tools[1]["inputSchema"]["required"], json!(["query"]));

    let text = "Zusturk Giseth was born in Old Riavuck. What a nice day.";
    let expected = host(&["check", "--json", "--text", text]).found(3).json();
    assert_eq!(expected["unsupported"], 1);
    assert_eq!(session.result("check", &json!({"text": text})), expected);

    let query = "Zusturk Giseth AND Mount Kogrix";
    let counted = host(&["index", "count", "--json", "--show", "2", query]).good().json();
    let count = session.result("count", &json!({"query": query}));
    assert_eq!(count, json!({"occurrences": counted["count"], "precision": "exact"}));
    assert!(count["occurrences"].as_u64().unwrap() > 0);
    let found = session.result("find_passages", &json!({"query": query, "limit": 2}));
    assert_eq!(found["passages"], counted["passages"]);
    session.end();
}

#[test]
fn errors_reach_the_assistant_and_the_session_continues() {
    let mut session = Session::start(&[]);
    let refused = [
        ("count", json!({"query": "heron AND "}), "empty"),
        ("find_passages", json!({"query": "heron", "limit": 21}), "1 to 20 passages"),
        ("check", json!({"text": "Nobody lives here."}), "fictional world"),
        ("check", json!({"text": "One. ".repeat(600)}), "at most 512"),
        ("check", json!({"text": "Zusturk Giseth.", "passages": 21}), "at most 20"),
    ];
    for (tool, arguments, expected) in refused {
        let message = session.error(tool, &arguments);
        assert!(message.contains(expected), "{tool} {arguments}: {message}");
    }
    // Arguments that do not fit the schema are errors of the protocol.
    for arguments in [json!({}), json!({"query": 1}), json!({"query": "a", "limits": 3})] {
        let reply = session.call("count", &arguments);
        let is_refused = reply["error"].is_object() || reply["result"]["isError"] == true;
        assert!(is_refused, "{reply}");
    }
    assert!(session.request("tools/fetch", &json!({}))["error"].is_object());
    assert!(session.call("delete", &json!({}))["error"].is_object());
    session.send(&json!("no message"));
    assert_eq!(session.receive()["error"]["code"], -32600);
    session.result("count", &json!({"query": "Zusturk Giseth"}));
    session.end();
}

#[test]
fn unusable_settings_end_the_command_before_a_session() {
    let message = host(&["mcp", "--index", "/nowhere/index"]).found(1).stderr;
    assert!(message.contains("/nowhere/index"), "{message}");
}
