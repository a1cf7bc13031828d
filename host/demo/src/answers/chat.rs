//! A chat model that knows the world.

use corver_core::response::AnswerRule;
use corver_core::{BoxError, ChatModel, ChatPrompt, ChatReply, Label, Usage};

use super::InjectedErrors;
use super::task::{ChatTask, user_message};
use crate::WorldTruth;
use crate::reader::{ParsedQuestion, Reader};
use crate::world::World;

/// Reply to a message that is no task: a chat model always replies.
const NOT_UNDERSTOOD: &str =
    "I do not understand this. I split texts, judge answers, and verify or rate statements.";
/// Reply to a text without a statement.
const NO_STATEMENT: &str = "NONE";
/// Characters per token: the demo's model has no tokenizer.
const TOKEN_CHARS: usize = 4;

/// A chat model that knows all facts of a world, and understands these fields of the user's last
/// message, as `<name>…</name>`:
///
/// | fields | reply |
/// | --- | --- |
/// | `question` (may be empty), `text` | each statement of the text on a line after `- `, or `NONE` |
/// | `question`, `gold` once or more, `answer` | `A`: a gold matches; `B`: none; `C`: not attempted |
/// | `statement`, `passage` any number of times | `Correct` or `Wrong`; `Vague` if no passage names the subject |
/// | `question`, `statement` | `5`: about the question's fact; `3`: about its subject; `1`: neither |
///
/// A statement is a clause about a named entity, with its subject and as a separate sentence. A wrong
/// reply is another one of the list. A wrong reply to a text omits a statement, or takes a text
/// without any for one.
///
/// Temperature and length limit of a prompt have no effect. Its seed is a part of the request, so
/// another seed may make a right answer wrong. Usage is one token per 4 characters, rounded up.
#[derive(Debug, Clone)]
pub struct DemoChat {
    reader: Reader,
    truth: WorldTruth,
    errors: InjectedErrors,
}

/// The right reply, and the wrong ones that may replace it.
struct Replies {
    right: String,
    wrong: Vec<String>,
}

impl Replies {
    /// Returns the replies to a task with a fixed list of choices.
    fn choose(right: &str, choices: &[&str]) -> Self {
        let wrong = choices.iter().filter(|choice| **choice != right);
        Self { right: right.to_owned(), wrong: wrong.map(|&choice| choice.to_owned()).collect() }
    }
}

impl DemoChat {
    /// Returns a model that knows `world` and answers with `errors`.
    #[must_use]
    pub fn new(world: &World, errors: InjectedErrors) -> Self {
        Self { reader: Reader::new(world), truth: WorldTruth::new(world), errors }
    }

    fn content(&self, prompt: &ChatPrompt) -> String {
        let message = user_message(prompt);
        let Some(task) = ChatTask::parse(message) else { return NOT_UNDERSTOOD.to_owned() };
        let Replies { right, wrong } = match task {
            ChatTask::Statements { question, text } => self.statements(question, text),
            ChatTask::Judge { golds, answer } => Replies::choose(
                letter(AnswerRule::default().grade_answer(answer, &golds)),
                &["A", "B", "C"],
            ),
            ChatTask::Verify { statement, passages } => {
                Replies::choose(self.verified(statement, &passages), &["Correct", "Wrong", "Vague"])
            }
            ChatTask::Helpfulness { question, statement } => {
                Replies::choose(self.helpfulness(question, statement), &["5", "3", "1"])
            }
        };
        let seed = prompt.seed.map(|seed| seed.to_string()).unwrap_or_default();
        self.errors.answer(&[message, &seed], right, wrong)
    }

    /// Lists the statements of a text. A wrong reply omits one; if there is none, it lists the text.
    fn statements(&self, question: &str, text: &str) -> Replies {
        let question = self.reader.parse_question(question);
        let clauses = self.reader.clauses(text, question.as_ref());
        let lines: Vec<String> =
            clauses.iter().map(|clause| format!("- {}.", sentence_case(&clause.text))).collect();
        let mut wrong = Vec::new();
        for omitted in 0..lines.len() {
            wrong.push(list_of(&[&lines[..omitted], &lines[omitted + 1..]].concat()));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        if lines.is_empty() && !words.is_empty() {
            wrong.push(format!("- {}", words.join(" ")));
        }
        Replies { right: list_of(&lines), wrong }
    }

    /// Verifies a statement by the world's facts, if the passages name all its subjects.
    fn verified(&self, statement: &str, passages: &[&str]) -> &'static str {
        let facts = self.reader.facts(statement, None);
        for fact in facts {
            if !passages.iter().any(|passage| passage.contains(&fact.head)) {
                return "Vague";
            }
        }
        match self.truth.is_true(statement) {
            Some(true) => "Correct",
            Some(false) => "Wrong",
            None => "Vague",
        }
    }

    fn helpfulness(&self, question: &str, statement: &str) -> &'static str {
        let Some(ParsedQuestion { subject, relation }) = self.reader.parse_question(question)
        else {
            return "1";
        };
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
        let mut replies = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let content = self.content(prompt);
            let prompt_chars =
                prompt.messages.iter().map(|message| message.content.chars().count()).sum();
            let usage = Usage {
                prompt_tokens: tokens(prompt_chars),
                completion_tokens: tokens(content.chars().count()),
            };
            replies.push(ChatReply { content, usage });
        }
        Ok(replies)
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
    characters.div_ceil(TOKEN_CHARS) as u64
}

fn list_of(lines: &[String]) -> String {
    if lines.is_empty() { NO_STATEMENT.to_owned() } else { lines.join("\n") }
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
    use crate::{EntityId, EntityKind, QuestionSplit, WorldSize};

    fn prompt(content: &str) -> ChatPrompt {
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let messages =
            vec![message(ChatRole::System, "Be brief."), message(ChatRole::User, content)];
        ChatPrompt { messages, temperature: 0.0, top_p: 1.0, max_tokens: 256, seed: None }
    }

    /// Returns a world and one of its films, with the names of its director and city.
    fn world() -> (World, EntityId, String, String) {
        let world = World::generate(1, &WorldSize::default());
        let film = world.ids(EntityKind::Film).next().unwrap();
        let [director, city] = [Relation::Directed, Relation::SetIn].map(|relation| {
            let fact = world.facts_of(film).iter().find(|fact| fact.relation == relation).unwrap();
            world.name(fact.tails[0]).to_owned()
        });
        (world, film, director, city)
    }

    fn reply_to(world: &World, error_rate: f64, content: &str) -> String {
        let mut model = DemoChat::new(world, InjectedErrors::new(error_rate, 1).unwrap());
        model.reply(&[prompt(content)]).unwrap().remove(0).content
    }

    #[test]
    fn demo_chat_splits_text_into_statements() {
        let (world, film, director, city) = world();
        let film = world.name(film);
        let reply = |question: &str, text: &str| {
            reply_to(&world, 0.0, &format!("<question>{question}</question>\n<text>{text}</text>"))
        };
        let both = format!("- {film} was directed by {director}.\n- {film} is set in {city}.");
        let text = format!("{film} was directed by {director} and is set in {city}.");
        assert_eq!(reply("", &text), both);
        let question = format!("Who directed {film}?");
        let pronoun = text.replace(film, "It");
        assert_eq!(reply(&question, &pronoun), both);
        assert_eq!(reply(&question, &director), format!("- {film} was directed by {director}."));
        let inner = format!("{film} is set in {city}, and the director of {film} was {director}.");
        assert_eq!(
            reply("", &inner),
            format!("- {film} is set in {city}.\n- The director of {film} was {director}.")
        );
        for nothing in ["", "I don't know.", &question] {
            assert_eq!(reply(&question, nothing), "NONE", "{nothing}");
        }
    }

    #[test]
    fn demo_judge_agrees_with_string_match() {
        let (world, ..) = world();
        let reply = |answer: &str| {
            let golds = "<gold>Port Abc</gold><gold>Port Def</gold>";
            reply_to(
                &world,
                0.0,
                &format!("<question>Where?</question>{golds}<answer>{answer}</answer>"),
            )
        };
        assert_eq!(
            ["in Port Def", "Port Ghi", "I don't know", ""].map(reply),
            ["A", "B", "C", "C"]
        );
    }

    #[test]
    fn statement_verdict_needs_passage_naming_subject() {
        let (world, film, director, city) = world();
        let film = world.name(film);
        let reply = |statement: &str, passage: &str| {
            reply_to(
                &world,
                0.0,
                &format!("<statement>{statement}</statement><passage>{passage}</passage>"),
            )
        };
        let about = format!("This article is about the film {film}.");
        assert_eq!(reply(&format!("{film} was directed by {director}."), &about), "Correct");
        assert_eq!(reply(&format!("{director} directed {film}."), &about), "Correct");
        assert_eq!(reply(&format!("{film} was directed by Nobody Atall."), &about), "Wrong");
        assert_eq!(reply(&format!("{film} is set in {city}."), "Nothing."), "Vague");
        assert_eq!(reply(&format!("{film} was shot in {city}."), &about), "Vague");
        assert_eq!(
            reply_to(&world, 0.0, &format!("<statement>{film} is set in {city}.</statement>")),
            "Vague"
        );
    }

    #[test]
    fn statement_helpfulness_depends_on_question() {
        let (world, film, director, city) = world();
        let question = &world
            .questions_of(&world.facts_of(film)[0], QuestionSplit::Train)
            .next()
            .unwrap()
            .question;
        let film = world.name(film);
        let reply = |question: &str, statement: &str| {
            reply_to(
                &world,
                0.0,
                &format!("<question>{question}</question><statement>{statement}</statement>"),
            )
        };
        assert_eq!(reply(question, &format!("{director} directed {film}.")), "5");
        assert_eq!(reply(question, &format!("{film} is set in {city}.")), "3");
        assert_eq!(reply(question, &format!("{director} was born in {city}.")), "1");
        assert_eq!(reply("Who are you?", &format!("{film} is set in {city}.")), "1");
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
            let reply = reply_to(&world, 1.0, &content);
            assert!(wrong.contains(&reply.as_str()), "{content}: {reply}");
        }
    }

    #[test]
    fn unknown_prompts_get_reply_and_usage_is_counted() {
        let (world, ..) = world();
        let mut model = DemoChat::new(&world, InjectedErrors::new(1.0, 1).unwrap());
        let none = ChatPrompt { messages: Vec::new(), ..prompt("") };
        let replies = model
            .reply(&[prompt("Hello"), none, prompt("<question>q</question><text></text>")])
            .unwrap();
        assert!(replies[..2].iter().all(|reply| reply.content == NOT_UNDERSTOOD));
        // “Be brief.” has 9 characters, the message 35, the reply 4.
        assert_eq!(replies[2].usage, Usage { prompt_tokens: 11, completion_tokens: 1 });
    }
}
