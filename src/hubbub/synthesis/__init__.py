"""The non-interactive case: tables measured once that answer later questions, and synthetic rows."""
