"""A local page to look at labels and decide: what is measured, and what is cleaned.

`store` keeps every answer, `measure` turns answers on a random sample into the noise rate, `clean`
lists the suspects, `export` gives the results to other tools, and `server` shows all of it on a
page that only this machine's user can open.
"""
