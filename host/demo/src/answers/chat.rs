//! What a chat model replies that knows the world.

use corver_core::response::AnswerRule;
use corver_core::{BoxError, ChatModel, ChatPrompt, ChatReply, Label, Usage};

use super::Errors;
use super::request::{Request, asked};
use crate::Truth;
use crate::reader::{Asked, Reader};
use crate::world::World;

/// Said of anything else: a chat model always replies.
const NOT_UNDERSTOOD: &str =
    "I do not understand this. I split texts, judge answers, and verify or rate statements.";
/// Where a text has no statement.
const NONE: &str = "NONE";
/// Characters of a token: the demo's model has no tokenizer.
const TOKEN: usize = 4;

/// Knows all facts of a world, and understands these fields of the user's last message, as
/// `<name>…</name>`:
///
/// | fields | reply |
/// | --- | --- |
/// | `question` (may be empty), `text` | the statements of the text: a line each that begins with `- `, or `NONE` |
/// | `question`, `gold` once or more, `answer` | `A`: the string match finds a gold in it; `B`: none; `C`: a refusal, or nothing |
/// | `statement`, `passage` any number of times | `Correct` or `Wrong` where a passage names whom it is about, `Vague` elsewhere |
/// | `question`, `statement` | `5`: about what is asked; `3`: about whom is asked; `1` |
///
/// A statement is a clause that says something of somebody, with its subject and as a sentence of
/// its own. A wrong reply is another one of the list; to a text, one that leaves out a statement,
/// or takes a text without any for one.
///
/// Temperature and bounds of a prompt change nothing; another seed of the prompt may make a right
/// answer wrong. Usage is counted as one token for 4 characters of the messages, rounded up.
#[derive(Debug, Clone)]
pub struct DemoChat {
    reader: Reader,
    truth: Truth,
    errors: Errors,
}

/// A reply, and what can be said in its place.
struct Replies {
    right: String,
    wrong: Vec<String>,
}

impl Replies {
    /// One of a fixed list.
    fn of(right: &str, all: &[&str]) -> Self {
        let wrong = all.iter().filter(|other| **other != right).map(|&other| other.to_owned());
        Self { right: right.to_owned(), wrong: wrong.collect() }
    }
}

impl DemoChat {
    /// Of a world.
    #[must_use]
    pub fn new(world: &World, errors: Errors) -> Self {
        Self { reader: Reader::of(world), truth: Truth::of(world), errors }
    }

    fn content(&self, prompt: &ChatPrompt) -> String {
        let message = asked(prompt);
        let Some(request) = Request::of(message) else { return NOT_UNDERSTOOD.to_owned() };
        let Replies { right, wrong } = match request {
            Request::Statements { question, text } => self.statements(question, text),
            Request::Judge { golds, answer } => Replies::of(
                letter(AnswerRule::Paper.grade_answer(answer, &golds)),
                &["A", "B", "C"],
            ),
            Request::Verify { statement, passages } => {
                Replies::of(self.verified(statement, &passages), &["Correct", "Wrong", "Vague"])
            }
            Request::Helpfulness { question, statement } => {
                Replies::of(self.helpfulness(question, statement), &["5", "3", "1"])
            }
        };
        let seed = prompt.seed.map(|seed| seed.to_string()).unwrap_or_default();
        self.errors.answer(&[message, &seed], right, wrong)
    }

    /// Wrong is a reply that leaves one out, or, where there is none, takes the whole text for one.
    fn statements(&self, question: &str, text: &str) -> Replies {
        let asked = self.reader.asked(question);
        let clauses = self.reader.clauses(text, asked.as_ref());
        let lines: Vec<String> =
            clauses.iter().map(|clause| format!("- {}.", sentence_case(&clause.text))).collect();
        let listed =
            |chosen: &[String]| if chosen.is_empty() { NONE.to_owned() } else { chosen.join("\n") };
        let without =
            |left_out: usize| listed(&[&lines[..left_out], &lines[left_out + 1..]].concat());
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = match lines.len() {
            0 if words.is_empty() => Vec::new(),
            0 => vec![format!("- {}", words.join(" "))],
            many => (0..many).map(without).collect(),
        };
        Replies { right: listed(&lines), wrong }
    }

    /// Decided by what is true, of subjects that the passages name.
    fn verified(&self, statement: &str, passages: &[&str]) -> &'static str {
        let facts = self.reader.facts(statement, None);
        let is_named =
            |name: &String| passages.iter().any(|passage| passage.contains(name.as_str()));
        match self.truth.is_true(statement) {
            Some(is_true) if facts.iter().all(|fact| is_named(&fact.head)) => {
                if is_true {
                    "Correct"
                } else {
                    "Wrong"
                }
            }
            _ => "Vague",
        }
    }

    fn helpfulness(&self, question: &str, statement: &str) -> &'static str {
        let Some(Asked { subject, relation }) = self.reader.asked(question) else { return "1" };
        let facts = self.reader.facts(statement, None);
        if facts.iter().any(|fact| fact.head == subject && Some(fact.relation) == relation) {
            "5"
        } else if statement.contains(&subject) {
            "3"
        } else {
            "1"
        }
    }
}

impl ChatModel for DemoChat {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let reply = |prompt: &ChatPrompt| {
            let content = self.content(prompt);
            let asked: usize =
                prompt.messages.iter().map(|message| message.content.chars().count()).sum();
            let usage = Usage {
                prompt_tokens: tokens(asked),
                completion_tokens: tokens(content.chars().count()),
            };
            ChatReply { content, usage }
        };
        Ok(prompts.iter().map(reply).collect())
    }
}

fn letter(label: Label) -> &'static str {
    match label {
        Label::Good => "A",
        Label::Bad => "B",
        Label::NotAttempted => "C",
    }
}

fn tokens(characters: usize) -> u64 {
    characters.div_ceil(TOKEN) as u64
}

fn sentence_case(clause: &str) -> String {
    let mut characters = clause.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use corver_core::{ChatRole, Message};

    use super::*;
    use crate::relation::Relation;
    use crate::{EntityId, Kind, Split, WorldSize};

    fn prompt(content: &str) -> ChatPrompt {
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let messages =
            vec![message(ChatRole::System, "Be brief."), message(ChatRole::User, content)];
        ChatPrompt { messages, temperature: 0.0, top_p: 1.0, max_tokens: 256, seed: None }
    }

    /// A world, and a film of it with its director and city.
    fn world() -> (World, EntityId, String, String) {
        let world = World::generate(1, &WorldSize::default());
        let film = world.ids(Kind::Film).next().unwrap();
        let [director, city] = [Relation::Directed, Relation::SetIn].map(|relation| {
            let fact = world.facts_of(film).iter().find(|fact| fact.relation == relation).unwrap();
            world.name(fact.tails[0]).to_owned()
        });
        (world, film, director, city)
    }

    fn said(world: &World, error_rate: f64, content: &str) -> String {
        let mut model = DemoChat::new(world, Errors::new(error_rate, 1).unwrap());
        model.reply(&[prompt(content)]).unwrap().remove(0).content
    }

    #[test]
    fn demo_chat_splits_text_into_statements() {
        let (world, film, director, city) = world();
        let film = world.name(film);
        let ask = |question: &str, text: &str| {
            said(&world, 0.0, &format!("<question>{question}</question>\n<text>{text}</text>"))
        };
        let both = format!("- {film} was directed by {director}.\n- {film} is set in {city}.");
        let text = format!("{film} was directed by {director} and is set in {city}.");
        assert_eq!(ask("", &text), both);
        let question = format!("Who directed {film}?");
        let pronoun = text.replace(film, "It");
        assert_eq!(ask(&question, &pronoun), both);
        assert_eq!(ask(&question, &director), format!("- {film} was directed by {director}."));
        let inner = format!("{film} is set in {city}, and the director of {film} was {director}.");
        assert_eq!(
            ask("", &inner),
            format!("- {film} is set in {city}.\n- The director of {film} was {director}.")
        );
        for nothing in ["", "I don't know.", &question] {
            assert_eq!(ask(&question, nothing), "NONE", "{nothing}");
        }
    }

    #[test]
    fn demo_judge_agrees_with_string_match() {
        let (world, ..) = world();
        let ask = |answer: &str| {
            let golds = "<gold>Port Abc</gold><gold>Port Def</gold>";
            said(
                &world,
                0.0,
                &format!("<question>Where?</question>{golds}<answer>{answer}</answer>"),
            )
        };
        assert_eq!(["in Port Def", "Port Ghi", "I don't know", ""].map(ask), ["A", "B", "C", "C"]);
    }

    #[test]
    fn statement_verdict_needs_passage_naming_subject() {
        let (world, film, director, city) = world();
        let film = world.name(film);
        let ask = |statement: &str, passage: &str| {
            said(
                &world,
                0.0,
                &format!("<statement>{statement}</statement><passage>{passage}</passage>"),
            )
        };
        let about = format!("This article is about the film {film}.");
        assert_eq!(ask(&format!("{film} was directed by {director}."), &about), "Correct");
        assert_eq!(ask(&format!("{director} directed {film}."), &about), "Correct");
        assert_eq!(ask(&format!("{film} was directed by Nobody Atall."), &about), "Wrong");
        assert_eq!(ask(&format!("{film} is set in {city}."), "Nothing."), "Vague");
        assert_eq!(ask(&format!("{film} was shot in {city}."), &about), "Vague");
        assert_eq!(
            said(&world, 0.0, &format!("<statement>{film} is set in {city}.</statement>")),
            "Vague"
        );
    }

    #[test]
    fn statement_helpfulness_depends_on_question() {
        let (world, film, director, city) = world();
        let question =
            &world.questions_of(&world.facts_of(film)[0], Split::Train).next().unwrap().question;
        let film = world.name(film);
        let ask = |question: &str, statement: &str| {
            said(
                &world,
                0.0,
                &format!("<question>{question}</question><statement>{statement}</statement>"),
            )
        };
        assert_eq!(ask(question, &format!("{director} directed {film}.")), "5");
        assert_eq!(ask(question, &format!("{film} is set in {city}.")), "3");
        assert_eq!(ask(question, &format!("{director} was born in {city}.")), "1");
        assert_eq!(ask("Who are you?", &format!("{film} is set in {city}.")), "1");
    }

    #[test]
    fn injected_errors_preserve_reply_format() {
        let (world, film, director, _) = world();
        let film = world.name(film);
        let text = format!("{film} was directed by {director}.");
        for (content, wrong) in [
            (format!("<question></question><text>{text}</text>"), &["NONE"][..]),
            ("<question></question><text>I don't\nknow.</text>".to_owned(), &["- I don't know."]),
            ("<question></question><text> </text>".to_owned(), &["NONE"]),
            ("<question>q</question><gold>a b</gold><answer>a b</answer>".to_owned(), &["B", "C"]),
            (
                format!("<statement>{text}</statement><passage>{film}</passage>"),
                &["Wrong", "Vague"],
            ),
            (
                format!("<question>Who directed {film}?</question><statement>{text}</statement>"),
                &["3", "1"],
            ),
        ] {
            let reply = said(&world, 1.0, &content);
            assert!(wrong.contains(&reply.as_str()), "{content}: {reply}");
        }
    }

    #[test]
    fn unknown_prompts_get_reply_and_usage_is_counted() {
        let (world, ..) = world();
        let mut model = DemoChat::new(&world, Errors::new(1.0, 1).unwrap());
        let none = ChatPrompt { messages: Vec::new(), ..prompt("") };
        let replies = model
            .reply(&[prompt("Hello"), none, prompt("<question>q</question><text></text>")])
            .unwrap();
        assert!(replies[..2].iter().all(|reply| reply.content == NOT_UNDERSTOOD));
        // “Be brief.” has 9 characters, the message 35, the reply 4.
        assert_eq!(replies[2].usage, Usage { prompt_tokens: 11, completion_tokens: 1 });
    }
}
