//! Tools of an assistant, as a Model Context Protocol server on standard input and output.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock, Implementation, ServerCapabilities, ServerConfig};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Greatest length of a message of the client, bytes. The library drops a longer one.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// The work of the tools. Each result is an object that the assistant reads.
///
/// # Errors
/// If the arguments are not valid, or a part fails. The assistant reads the message.
pub trait Tools: Send + 'static {
    /// Checks the sentences of a text.
    fn check(&mut self, arguments: CheckArguments) -> Result<Value>;
    /// Counts the matches of a query.
    fn count(&mut self, arguments: CountArguments) -> Result<Value>;
    /// Finds passages that match a query.
    fn passages(&mut self, arguments: PassagesArguments) -> Result<Value>;
}

// The comments of these fields are the descriptions that the assistant reads.

/// Arguments of the tool `check`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckArguments {
    /// Text to check, in full sentences.
    pub text: String,
    /// Question that the text answers.
    #[serde(default)]
    pub question: String,
    /// Passages to show for each claim, 0 to 20. Default: 1 if the corpus is on this machine.
    pub passages: Option<usize>,
}

/// Arguments of the tool `count`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountArguments {
    /// Words or phrases joined by AND and OR; OR binds closer, and there are no brackets. Example:
    /// "Marie Curie AND Warsaw OR Paris". Words are matched as they are written, so case matters.
    pub query: String,
}

/// Arguments of the tool `find_passages`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PassagesArguments {
    /// Words or phrases joined by AND and OR, as for `count`.
    pub query: String,
    /// Greatest number of passages, 1 to 20. Default: 3.
    pub limit: Option<usize>,
}

struct Server<T> {
    tools: Arc<Mutex<T>>,
}

#[tool_router]
impl<T: Tools> Server<T> {
    #[tool(
        description = "Check the sentences of a text against the corpus. Each sentence is supported, \
                       unsupported, without a claim, or not tested, with its claims (head, relation, \
                       tail) and the number of times that head and tail occur together.",
        annotations(read_only_hint = true)
    )]
    async fn check(&self, Parameters(arguments): Parameters<CheckArguments>) -> CallToolResult {
        self.call(|tools| tools.check(arguments)).await
    }

    #[tool(
        description = "Count how often words or phrases occur near each other in the corpus.",
        annotations(read_only_hint = true)
    )]
    async fn count(&self, Parameters(arguments): Parameters<CountArguments>) -> CallToolResult {
        self.call(|tools| tools.count(arguments)).await
    }

    #[tool(
        description = "Find passages of the corpus in which words or phrases occur near each other.",
        annotations(read_only_hint = true)
    )]
    async fn find_passages(
        &self,
        Parameters(arguments): Parameters<PassagesArguments>,
    ) -> CallToolResult {
        self.call(|tools| tools.passages(arguments)).await
    }

    /// Runs a tool on a thread that may block, one call at a time.
    async fn call(
        &self,
        tool: impl FnOnce(&mut T) -> Result<Value> + Send + 'static,
    ) -> CallToolResult {
        let tools = Arc::clone(&self.tools);
        let called = tokio::task::spawn_blocking(move || {
            tool(&mut tools.lock().unwrap_or_else(PoisonError::into_inner))
        });
        match called.await.context("the tool panicked").flatten() {
            Ok(value) => CallToolResult::structured(value),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(format!("{error:#}"))]),
        }
    }
}

#[tool_handler]
impl<T: Tools> ServerHandler for Server<T> {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new("corver-host", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(implementation)
    }
}

/// Serves the tools on standard input and output until the client closes them.
///
/// # Errors
/// If the client does not begin as the protocol says, or a stream fails.
pub fn serve(tools: impl Tools) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let (input, output) = rmcp::transport::io::stdio();
        let transport =
            AsyncRwTransport::new(input, output).with_max_line_length(MAX_MESSAGE_BYTES);
        let server = Server { tools: Arc::new(Mutex::new(tools)) };
        let service =
            server.serve(transport).await.context("the client did not begin a session")?;
        service.waiting().await.context("the session failed")?;
        Ok(())
    })
}
