//! A scripted agent that speaks ACP; see `lariat_testkit::acp`.

fn main() {
    lariat_testkit::acp::main();
}
