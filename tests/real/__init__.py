"""The proof on real input: a real model server, real clients, the proxy between them.

    make real                    (or .venv/bin/python -m tests.real)

What it does:

1. makes an environment with llama.cpp's server, a small model (Gemma 3 270M) and the SDKs of OpenAI
   and Anthropic, all pinned. This is done once and takes 10 to 25 minutes, because the server is
   built from source; it needs a C++ compiler. `install.py`
2. starts the model server with two slots on one core, and `ttft serve` in front of it, each as a
   process of its own. `processes.py`
3. asks: SDKs and curl on the chat, responses and messages routes, streamed and not, each directly
   and through the proxy at temperature 0; then six streams at once, of which four have to queue;
   then a prompt of about 1,500 tokens, twice, the second time from the server's cache. `plan.py`
   says what, `clients.py` does it. About a minute and a half.
4. compares the proxy's account with what the client measured and with the server's own timings,
   request by request, and prints the table. `checks.py`, `table.py`

Exit codes: 0 passed; 1 failed, with every complaint printed; 77 skipped, with the reason, because
something cannot be installed or started here. Skipped is never passed.

Files are kept in `.cache/real/`: the table, the records, the logs of both servers, the model, the
environment. TTFT_REAL_VENV names another place for the environment. Nothing leaves the machine but
the downloads of step 1; the API key is a fake, and no real one is passed on to any process.

Not covered: TLS, a long network path, other servers than llama.cpp.
llama.cpp (MIT) comes in a package under the AGPL; it runs as a separate process and no part of it
is distributed with this project.
"""
