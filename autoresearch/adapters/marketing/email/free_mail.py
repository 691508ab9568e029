"""Domains that anybody can have an address at: there, two addresses are no sign of one company."""

from __future__ import annotations

_DOMAINS = """
126.com 139.com 163.com aim.com aliyun.com alice.it aol.com arcor.de att.net bellsouth.net bigpond.com bluewin.ch
btinternet.com charter.net club-internet.fr comcast.net cox.net daum.net docomo.ne.jp duck.com earthlink.net
ezweb.ne.jp fastmail.com fastmail.fm foxmail.com free.fr freemail.hu freenet.de gazeta.pl gmail.com gmx.at gmx.ch
gmx.com gmx.de gmx.net googlemail.com hanmail.net hey.com home.nl hotmail.co.jp hotmail.co.uk hotmail.com hotmail.de
hotmail.es hotmail.fr hotmail.it hotmail.nl hushmail.com i.softbank.jp icloud.com inbox.com inbox.lv interia.pl
kpnmail.nl laposte.net libero.it live.co.uk live.com live.de live.fr live.it live.nl mac.com mail.com mail.de
mail.ru mailbox.org me.com msn.com mynet.com naver.com neuf.fr nifty.com ntlworld.com o2.pl online.de onet.pl
op.pl orange.fr outlook.com outlook.de outlook.es outlook.fr outlook.it outlook.jp planet.nl posteo.de proton.me
protonmail.ch protonmail.com qq.com rediffmail.com rocketmail.com sapo.pt sbcglobal.net seznam.cz sfr.fr shaw.ca
sina.com sky.com skynet.be softbank.ne.jp t-online.de talktalk.net telenet.be telia.com terra.com.br tin.it
tiscali.it tuta.com tutanota.com ukr.net uol.com.br verizon.net virgilio.it virgin.net virginmedia.com wanadoo.fr
web.de wp.pl xs4all.nl xtra.co.nz yahoo.ca yahoo.co.in yahoo.co.jp yahoo.co.uk yahoo.com yahoo.com.br yahoo.com.tr
yahoo.de yahoo.es yahoo.fr yahoo.it yandex.com yandex.com.tr yandex.ru ymail.com zoho.com ziggo.nl
"""

FREE_MAIL = frozenset(_DOMAINS.split())
"""In lower case. A domain that is missing here groups strangers, which costs precision and falsifies nothing."""
