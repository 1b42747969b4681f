"""The same question as Python, curl and SQL, to copy from the page of an answer."""

import json

from hubbub.server.console import texts
from hubbub.server.records import Answer, Question

__all__ = ["make_snippets"]


def make_snippets(answer: Answer, origin: str) -> dict[str, str]:
    """Return texts by their language's name; a token is named, never written.

    Args:
        answer: with its question.
        origin: the address of the server.
    """
    question = answer.question or Question(answer.sql)
    body = json.dumps(question.to_dict(), ensure_ascii=False)
    url = f"{origin}/api/v1/datasets/{answer.dataset}/run"
    curl = (
        f'{texts.TOKEN_COMMENT}\ncurl --cacert server.pem -H "Authorization: Bearer $HUBBUB_TOKEN" '
        f"-H 'Content-Type: application/json' \\\n  -d {_quote_for_shell(body)} {url}"
    )
    python = "\n".join(
        [
            texts.TOKEN_COMMENT,
            "import json, os, ssl, urllib.request",
            "",
            f"question = json.loads({body!r})",
            "request = urllib.request.Request(",
            f"    {url!r},",
            "    json.dumps(question).encode(),",
            "    {",
            '        "Authorization": "Bearer " + os.environ["HUBBUB_TOKEN"],',
            '        "Content-Type": "application/json",',
            "    },",
            ")",
            'context = ssl.create_default_context(cafile="server.pem")',
            "with urllib.request.urlopen(request, context=context) as response:",
            '    answer = json.load(response)["result"]',
        ]
    )
    setting = ""
    if question.epsilon is not None:
        setting = f"SET hubbub.epsilon = '{question.epsilon}';\n"
    elif question.error:
        stated = ",".join(f"{name}={value}" for name, value in question.error.items())
        setting = f"SET hubbub.error = {_quote_for_sql(stated)};\n"
    return {"Python": python, "curl": curl, "SQL": f"{setting}{question.sql};"}


def _quote_for_shell(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quote_for_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
