//! Renders chat templates with the environment that `transformers` gives them.

use std::error::Error as _;
use std::io::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};

/// A template with its variables, from a model's folder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TemplateSource {
    pub template: String,
    /// Text of the model's first token, `bos_token`; empty if it has none.
    pub bos: String,
    /// Text of the model's last token, `eos_token`; empty if it has none.
    pub eos: String,
    /// Variables of the template by name, such as Qwen3's `enable_thinking`.
    pub switches: Switches,
}

/// Variables of a template by name.
pub type Switches = serde_json::Map<String, serde_json::Value>;

/// The messages of a prompt.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Messages {
    pub system: Option<String>,
    pub user: String,
}

/// A template that is compiled and ready to render.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    switches: Value,
}

const NAME: &str = "chat";

/// Longest template, bytes. Those of published models have up to 20,000.
const MAX_SOURCE: usize = 1 << 20;
/// Most instructions of the template engine for one prompt. Published templates take some hundreds
/// for two messages.
const FUEL: u64 = 100_000;
/// Longest rendered prompt, bytes.
const MAX_PROMPT: usize = 4 << 20;

impl Template {
    pub(crate) fn read(source: TemplateSource) -> Result<Self, String> {
        let TemplateSource { template, bos, eos, switches } = source;
        if template.len() > MAX_SOURCE {
            return Err(format!(
                "it has {} bytes, and at most {MAX_SOURCE} are read",
                template.len()
            ));
        }
        let environment = environment(&template).map_err(|error| reason(&error))?;
        Ok(Self { environment, bos, eos, switches: Serde(switches).into() })
    }

    /// Renders a prompt up to the start of the assistant's answer.
    pub(crate) fn render(&self, Messages { system, user }: &Messages) -> Result<String, String> {
        let mut messages: Vec<Value> = Vec::new();
        if let Some(system) = system {
            messages.push(context! { role => "system", content => system });
        }
        messages.push(context! { role => "user", content => user });
        let context = context! {
            messages, add_generation_prompt => true, bos_token => &self.bos, eos_token => &self.eos,
            ..self.switches.clone()
        };
        let mut prompt = PromptWriter(Vec::new());
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut prompt).map(drop))
            .map_err(|error| reason(&error))?;
        Ok(String::from_utf8(prompt.0).expect("a template writes text"))
    }
}

/// A writer that fails after [`MAX_PROMPT`] bytes.
struct PromptWriter(Vec<u8>);

impl Write for PromptWriter {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + text.len() > MAX_PROMPT {
            return Err(std::io::Error::other(format!(
                "the prompt has more than {MAX_PROMPT} bytes"
            )));
        }
        self.0.extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the engine's message, with that of its cause if it has one.
fn reason(error: &Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn environment(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", fixed_date);
    environment.add_template_owned(NAME, without_generation_marks(source))?;
    Ok(environment)
}

/// Replaces `{% generation %}` blocks, which mark the assistant's text for `transformers` and print
/// nothing, by a condition that is always true. Whitespace control is unchanged.
fn without_generation_marks(source: &str) -> String {
    let mut out = source.to_owned();
    for (mark, replacement) in [("generation", "if true"), ("endgeneration", "endif")] {
        for open in ["{%", "{%-", "{%+"] {
            for close in ["%}", "-%}", "+%}"] {
                out = out.replace(
                    &format!("{open} {mark} {close}"),
                    &format!("{open} {replacement} {close}"),
                );
            }
        }
    }
    out
}

/// Formats 26 July 2024, the fallback of Llama 3's own template, in place of today's date. With
/// today's date, prompts would change every day and no run could be repeated.
fn fixed_date(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        out.push_str(match characters.next() {
            Some('d') => "26",
            Some('b') => "Jul",
            Some('B') => "July",
            Some('m') => "07",
            Some('Y') => "2024",
            Some('y') => "24",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('H' | 'M' | 'S') => "00",
            Some('%') => "%",
            other => {
                let message = format!(
                    "strftime_now does not support the directive %{}",
                    other.unwrap_or(' ')
                );
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, system: Option<&str>, user: &str) -> Result<String, String> {
        let switches = serde_json::json!({"enable_thinking": false, "messages": "mine"})
            .as_object()
            .unwrap()
            .clone();
        let source = TemplateSource {
            template: template.into(),
            bos: "<s>".into(),
            eos: "</s>".into(),
            switches,
        };
        Template::read(source)?
            .render(&Messages { system: system.map(str::to_owned), user: user.into() })
    }

    const CHATML: &str = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}\
                          {%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

    #[test]
    fn chatml_template_renders_expected_prompt() {
        let got = render(CHATML, Some("Be brief."), "Who?").unwrap();
        let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(got, expected);
        assert!(!render(CHATML, None, "Who?").unwrap().contains("system"));
    }

    #[test]
    fn python_methods_and_slices_work() {
        let template = "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'].strip() %}\
                        {% set messages = messages[1:] %}{% endif %}{{ bos_token }}{{ s }}|\
                        {{ messages[-1]['content'].upper() }}{{ eos_token }}";
        assert_eq!(render(template, Some("  hi "), "q").unwrap(), "<s>hi|Q</s>");
    }

    #[test]
    fn template_fuel_output_and_source_are_limited() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        assert!(render(loops, None, "q").unwrap_err().contains("engine ran out of fuel"));
        let doubled = format!(
            "{{% set s = '{}' %}}{}{{{{ s }}}}",
            "x".repeat(1 << 16),
            "{% set s = s ~ s %}".repeat(8)
        );
        assert!(render(&doubled, None, "q").unwrap_err().contains("more than 4194304 bytes"));
        assert!(render(&" ".repeat(2 << 20), None, "q").unwrap_err().contains("at most 1048576"));
    }

    /// Constructs of the templates of Llama 3 and Qwen3.
    #[test]
    fn llama_and_qwen_template_constructs_render() {
        let template = r#"{%- if not date is defined %}{%- set date = strftime_now("%d %b %Y") %}{%- endif %}
            {%- if not tools is defined %}{%- set tools = none %}{%- endif %}
            {%- set ns = namespace(open=true, last=messages|length - 1) %}
            {%- for m in messages[::-1] %}
                {%- set index = (messages|length - 1) - loop.index0 %}
                {%- if ns.open and m.role == "user" and m.content is string
                       and not (m.content.startswith('<x>') and m.content.endswith('</x>')) %}
                    {%- set ns.open = false %}{%- set ns.last = index %}
                {%- endif %}
            {%- endfor %}
            {%- if tools is not none %}{{- tools | tojson }}{%- endif %}
            {{- date + '|' ~ ns.last }}
            {%- for m in messages %}
                {%- if loop.last %}
                    {{- '|' + m.content.split('</think>')[-1].lstrip('\n') | trim }}
                {%- endif %}
            {%- endfor %}
            {%- if enable_thinking is defined and enable_thinking is false %}{{- '!' }}{%- endif %}"#;
        assert_eq!(render(template, Some("s"), "a</think>\nb ").unwrap(), "26 Jul 2024|1|b!");
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let template = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}";
        assert_eq!(render(template, None, "x").unwrap(), "x\n");
    }

    #[test]
    fn generation_marks_print_nothing() {
        assert_eq!(
            render("a{%- generation -%} b {%- endgeneration -%} c", None, "x").unwrap(),
            "abc"
        );
    }

    #[test]
    fn strftime_now_returns_fixed_date() {
        assert_eq!(render("{{ strftime_now('%d %b %Y') }}", None, "x").unwrap(), "26 Jul 2024");
        assert!(render("{{ strftime_now('%j') }}", None, "x").is_err());
    }
}
